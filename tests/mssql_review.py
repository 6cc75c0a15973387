"""The page by which an expert reviews the T-SQL that claims, finishes, sweeps and sequences.

It is made of the headers of the texts, which name the index and the locks, and of the statements that are rendered for
every kind of queue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tablequeue.engines.engine import OPERATIONS
from tablequeue.engines.table import Table
from tablequeue.engines.texts import operations_of
from tests.mssql_rules import CTE, statements
from tests.rendering import rendered
from tests.support import DESIGNS
from tests.test_mssql_texts import ENGINE, definitions, topic_tables

# The operations on the page, and texts that are not operations.
GROUPS = {
    "Claims": ("claim", "take", "claim_run", "claim_group", "pump", "stream_open", "stream_lock", "stream_claim",
        "stream_set"),
    "Finishes": ("complete", "complete_stream", "keep_results", "fail", "release", "extend", "cancel", "cancel_held",
        "reschedule", "note", "batch_of", "lock_batch", "note_failed", "end_batch"),
    "Sweeps": ("sweep", "expire", "promote", "close_slots", "expire_ranges", "purge_ranges", "ended_dependencies",
        "orphaned_dependencies", "freed_heads", "free_heads", "waiting_fronts", "block_fronts", "forget_dependencies",
        "open_batches", "forget_batches", "forget_keys", "forget_rate", "forget_rates", "purge_history",
        "purge_history_ids"),
    "Sequences": ("sequence", "create_topic", "settle", "trim", "floor", "seek", "note_position"),
}  # fmt: skip
LEARN = "https://learn.microsoft.com/sql"
HINTS = f"{LEARN}/t-sql/queries/hints-transact-sql-table"
LEVELS = f"{LEARN}/t-sql/statements/set-transaction-isolation-level-transact-sql"
GUIDE = f"{LEARN}/relational-databases/sql-server-transaction-locking-and-row-versioning-guide"


class Fact(NamedTuple):
    """What the manual says of a word of a statement."""

    subject: str
    pattern: str
    """What a statement has that rests on the fact."""
    says: str
    """At most one sentence of the manual, or a short paraphrase."""
    page: str


FACTS = (
    Fact("INDEX", r"\bindex \(", "A filtered index as a hint raises error 8622 “if it doesn't cover all of the rows "
        "that the query selects”.", f"{HINTS}#filtered-index-hints"),
    Fact("FORCESEEK", r"\bforceseek\b", "The optimizer “uses only an index seek operation as the access path to the "
        "data in the table or view”.", HINTS),
    Fact("ROWLOCK", r"\browlock\b", "“Row locks are taken when page or table locks are ordinarily taken.”", HINTS),
    Fact("READPAST", r"\breadpast\b", "“Row-level locks are skipped, but page-level locks aren't skipped.”", HINTS),
    Fact("UPDLOCK", r"\bupdlock\b", "“Update locks are to be taken and held until the transaction completes”, and "
        "READCOMMITTEDLOCK beside it is ignored.", HINTS),
    Fact("READCOMMITTEDLOCK", r"\breadcommittedlock\b", "Shared locks are taken “as data is read”, and released “when "
        "the read operation is completed, regardless of the setting of” READ_COMMITTED_SNAPSHOT.", HINTS),
    Fact("TABLOCK, HOLDLOCK", r"\btablock\b", "“If HOLDLOCK is also specified, the table lock is held until the end of "
        "the transaction.”", HINTS),
    Fact("NOWAIT", r"\bnowait\b", "A message is returned “as soon as a lock is encountered on the table”.", HINTS),
    Fact("loop join, FORCE ORDER", r"\bloop join\b|\bforce order\b", "“The join order indicated by the query syntax is "
        "preserved.”", f"{LEARN}/t-sql/queries/hints-transact-sql-query"),
    Fact("a change", r"^(?:UPDATE|DELETE|INSERT)", "“A transaction always gets an exclusive lock on any data it "
        "modifies, and holds that lock until the transaction completes.”", LEVELS),
    Fact("rows that a change looks for", r"^(?:UPDATE|DELETE)", "“An update made at the READ_COMMITTED isolation level "
        "uses update locks on the data rows selected.”", LEVELS),
    Fact("a read without hints", r"\(no hint\)", "With READ_COMMITTED_SNAPSHOT “locks are not used to protect the data "
        "from updates by other transactions”; without it, “row locks are released before the next row is processed”.",
        LEVELS),
    Fact("TOP with ORDER BY", r"\btop \([\s\S]*\border by\b", "“The result set is limited to the first N number of "
        "ordered rows.”", f"{LEARN}/t-sql/queries/top-transact-sql"),
    Fact("OUTPUT", r"(?m)^ *output\b", "Without INTO “the target of the DML operation cannot have any enabled trigger "
        "defined on it for the given DML action”.", f"{LEARN}/t-sql/queries/output-clause-transact-sql#triggers"),
    Fact("OUTPUT INTO", r"\boutput\b[^;]*\binto \S", "The table cannot have enabled triggers, a FOREIGN KEY or CHECK "
        "constraints.", f"{LEARN}/t-sql/queries/output-clause-transact-sql"),
    Fact("sp_getapplock", r"\bsp_getapplock\b", "“Locks associated with the current transaction are released when the "
        "transaction commits or rolls back.”",
        f"{LEARN}/relational-databases/system-stored-procedures/sp-getapplock-transact-sql"),
)  # fmt: skip
# What holds for every statement.
ALWAYS = (
    ("5,000 locks", "Lock escalation is triggered when “a single Transact-SQL statement acquires at least 5,000 "
        "locks on a single nonpartitioned table or index”. A statement changes at most 1,000 messages, and "
        "LOCK_ESCALATION is DISABLE.", GUIDE),
    ("READPAST and the isolation level", "“READPAST can only be specified in transactions operating at the READ "
        "COMMITTED or REPEATABLE READ isolation levels.” A transaction of a caller must be READ COMMITTED: see "
        "[the levels](sql-server.md#the-isolation-level-of-your-transaction).", HINTS),
    ("READPAST and READ_COMMITTED_SNAPSHOT", "READPAST is refused at READ COMMITTED with that option, unless the query "
        "includes “the READCOMMITTEDLOCK table hint”.", HINTS),
    ("filtered indexes and SET options", "The optimizer “won't consider an index hint if the SET options don't have "
        "the required values for filtered indexes”; [the session](sql-server.md#settings-of-the-session) sets them.",
        f"{HINTS}#filtered-index-hints"),
    ("XACT_ABORT", "With ON, “if a Transact-SQL statement raises a run-time error, the entire transaction is "
        "terminated and rolled back”. Sessions of the library and the procedures have it on.",
        f"{LEARN}/t-sql/statements/set-xact-abort-transact-sql"),
)  # fmt: skip

INTRODUCTION = """\
# SQL Server: a page for reviewers

This page is for an expert in SQL Server, who can check the engine's locking in about two hours. It has every statement
that claims, finishes, sweeps or sequences: its hints, the index that it must use, the rows that it may lock, and the
sentences of Microsoft's manual on which it rests. **Nothing here has run on SQL Server.** Please report what is wrong.

The page is generated: `TABLEQUEUE_WRITE_DOCS=1 .venv/bin/pytest tests/test_mssql_review.py`. *Index* and *locks* are
those of the header of the text. The statements are those of every kind of queue, for a queue named `work` or a
subscription of the topic `work`; the column *where* names the kinds if not all have the statement. `tablequeue sql pop
work --dialect mssql` prints a whole text. [What else the engine relies on](sql-server.md#what-it-relies-on), with the
tests that hold the texts to it, is on the page of the engine.
"""


class Row(NamedTuple):
    """A statement of a text, as the page shows it."""

    action: str
    tables: str
    facts: str


def texts_of(operations: tuple[str, ...]) -> Iterator[str]:
    """Return the names of the texts that operations run, of those that SQL Server has."""
    there = operations_of("mssql")
    for name in operations:
        operation = OPERATIONS.get(name)
        names = [*(operation.texts or {name: ""}), *operation.others.split()] if operation else [name]
        yield from (each for each in names if each in there and (each == name or not each.startswith("create_")))


def tables_of(text: str) -> Iterator[tuple[str, Table]]:
    """Return the tables for which a text is rendered, each with the name of its kind."""
    topical = re.match(r"range_|topic_|create_topic|sequence", text)
    if topical:
        kind = "topic" if re.match(r"topic_|create_topic|sequence", text) else "subscription"
        for table in topic_tables(ENGINE):
            if table.definition.kind == kind:
                yield ("grouped " if table.definition.grouped else "") + kind, table
        return
    for design in ["fair"] if text in ("begin_ring", "claim_ring", "move_ring", "claim_group") else DESIGNS:
        for definition in definitions(design):
            yield design, ENGINE.table("work", definition)


def every_text(text: str) -> Iterator[tuple[str, str]]:
    """Return each text that an operation has in some queue, with the name of the queue's kind."""
    for kind, table in tables_of(text):
        topical = kind.endswith(("topic", "subscription"))
        for each in [ENGINE.render(text, table)] if topical else rendered(ENGINE, text, table):
            yield kind, each


def header_of(rendered_text: str) -> str:
    """Return the comment in front of a text; of a text that creates a procedure, that of the procedure."""
    if "\ncreate procedure " in rendered_text:
        rendered_text = rendered_text.partition("\ncreate procedure ")[0].rpartition("\ngo\n")[2]
    lines = []
    for line in rendered_text.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").strip())
    return " ".join(lines)


_ENDS = r"(?= (?:Index(?:es)?|Locks): | A crash | In one transaction| A consumer that dies| The attempt is |$)"


def promises(header: str) -> tuple[str, str]:
    """Return what a header says of the index and of the locks. Raise `ValueError` if it lacks one of them."""
    index = re.search(rf"\bIndex(?:es)?: (.+?){_ENDS}", header)
    locks = re.search(rf"\bLocks: (.+?){_ENDS}", header)
    if not index or not locks:
        raise ValueError(f"The header names no {'locks' if index else 'index'}: {header}")
    return brief(index[1]), brief(locks[1])


def brief(words: str) -> str:
    """Return the first sentences of what a header says."""
    first, *more = re.split(r"(?<=[.:]) (?=[A-Z])", words)
    for sentence in more:
        if len(first) + len(sentence) > 240:
            break
        first += f" {sentence}"
    return first.rstrip(".:")


_WITH = r"(?: as (?P<alias>\w+))?(?: with \((?P<hints>(?:[^()]|\([^()]*\))*)\))?"
_ACCESS = re.compile(rf"\b(?P<word>from|join|insert into|into|update) (?P<table>(?:tq_|sys\.)\w+){_WITH}")


def row_of(statement: str) -> Row | None:
    """Return the row of a statement; None if it touches no table and no application lock."""
    lock = re.search(r"\bexec @granted = sp_getapplock\b", statement)
    made = re.search(r"\bexec (tq_\w+)", statement)
    accesses = [found for found in _ACCESS.finditer(statement) if not found["table"].startswith("sys.")]
    if not (accesses or lock or made):
        return None
    changed = re.search(r"(?m)^\s*(update|delete(?: top \(\S+\))? from|delete|insert into) (\S+)", statement)
    aliases = {found["alias"]: found["table"] for found in accesses if found["alias"]}
    if of_rows := CTE.search(statement):
        aliases[of_rows[1]] = next(found["table"] for found in _ACCESS.finditer(of_rows[2]))
    if lock:
        action = "EXEC sp_getapplock" + (", without a wait" if "@LockTimeout = 0" in statement else "")
    elif changed:
        target = aliases.get(changed[2], changed[2])
        action = f"{changed[1].split()[0].upper()} {'@' * target.startswith('@')}{target.removeprefix('@')}"
        if changed[2].startswith("@"):
            action = f"SELECT into {changed[2]}"
    elif made:
        action = f"EXEC {made[1]}"
    else:
        action = "SELECT"
    shown = []
    for found in accesses:
        hints = " ".join((found["hints"] or "").split())
        if found["word"] in ("insert into", "update") and not hints:
            continue
        into = found["word"] == "into"
        shown.append(f"`{found['table']}`" + (" (OUTPUT INTO)" if into else f" ({hints or 'no hint'})"))
    tables = "; ".join(dict.fromkeys(shown))
    if changed and not changed[2].startswith("@"):
        # The rows to change are looked for with update locks, whatever the hints.
        target = aliases.get(changed[2], changed[2])
        tables = tables.replace(f"`{target}` (no hint)", f"`{target}`")
    whole = f"{action}\n{statement}\n{tables}"
    facts = [str(number) for number, fact in enumerate(FACTS, 1) if re.search(fact.pattern, whole)]
    return Row(action, tables, " ".join(facts))


def rows_of(text: str) -> dict[Row, list[str]]:
    """Return the statements of a text, each with the kinds of queues that have it."""
    rows: dict[Row, list[str]] = {}
    for kind, each in every_text(text):
        for batch in ENGINE.split(each):
            if text == "create_topic" and "create procedure" not in batch:
                continue
            for statement in statements(batch):
                row = row_of(statement)
                if row is not None and kind not in rows.setdefault(row, []):
                    rows[row].append(kind)
    return rows


def section(text: str) -> str:
    """Return the section of the page about a text."""
    texts = list(every_text(text))
    kinds = list(dict.fromkeys(kind for kind, _ in texts))
    index, locks = promises(header_of(texts[0][1]))
    lines = [f"### {text}", "", f"Index: {index}.  ", f"Locks: {locks}.", ""]
    lines += ["| statement | tables, with their hints | rests on | where |", "| --- | --- | --- | --- |"]
    for row, where in rows_of(text).items():
        named = "" if where == kinds else ", ".join(where)
        lines.append(f"| {row.action} | {row.tables} | {row.facts} | {named} |")
    return re.sub(r"\|  +\|", "| |", "\n".join(lines)) + "\n"


def page() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION, "## The manual\n"]
    facts = ["| | subject | Microsoft's manual |", "| --- | --- | --- |"]
    facts += [
        f"| {number} | {each.subject} | {each.says} [page]({each.page}) |" for number, each in enumerate(FACTS, 1)
    ]
    facts += [f"| all | {subject} | {says} [page]({where}) |" for subject, says, where in ALWAYS]
    parts.append("\n".join(facts) + "\n")
    done: set[str] = set()
    for group, operations in GROUPS.items():
        parts.append(f"## {group}\n")
        for text in texts_of(operations):
            if text not in done:
                done.add(text)
                parts.append(section(text))
    return "\n".join(parts)
