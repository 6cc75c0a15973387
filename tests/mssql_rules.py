"""Rules for T-SQL that no parser checks. Each is a function from a batch to its violations.

They use regular expressions on the rendered SQL, which is enough for the style of these files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

LOCKS = ("rowlock", "readpast", "updlock", "readcommittedlock")
FORBIDDEN = r"\b(merge|nolock|readuncommitted|tablockx?|holdlock|serializable|sp_executesql|select \*)(?!\w)"
# The rows that a statement selects and then changes: with NAME as (...) update|delete from NAME.
CTE = re.compile(r"with (\w+) as \(\n(.*?)\n\)\n(update|delete from) \1\b", re.DOTALL)
ALIASED = re.compile(r"^(?:update|delete from) (message|batch)\b", re.MULTILINE)


@dataclass
class Layout:
    """The result of the SQL that creates a queue: tables with their columns, indexes with columns and filter."""

    tables: dict[str, list[str]] = field(default_factory=dict)
    indexes: dict[str, tuple[str, list[str], str]] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Layout:
        layout = cls()
        for text in texts:
            for table, body in re.findall(r"create table (\S+) \(\n(.*?)\n\s*\);", text, re.DOTALL):
                lines = (re.match(r" +(?:, )?([a-z]\w+) ", line) for line in body.splitlines())
                layout.tables[table] = [line[1] for line in lines if line]
                layout.tables[table] = [name for name in layout.tables[table] if name != "constraint"]
                for name, column in re.findall(r"^ +(\w+) .*constraint (\w+) primary key", body, re.MULTILINE):
                    layout.indexes[column] = (table, [name], "")
            for name, table, columns, rest in re.findall(r"index (\w+) on (\S+) \(([^)]+)\)(.*)", text):
                found = re.search(r"\bwhere (.+?);?$", rest)
                layout.indexes[name] = (table, columns.split(", "), found[1] if found else "")
        return layout


def statements(batch: str) -> list[str]:
    return [statement for part in re.split(r";\n|;$", batch) if (statement := part.strip())]


def selects(batch: str) -> list[str]:
    """Return the selects of a batch, each without its subqueries."""
    found = []
    while inner := re.search(r"\(([^()]*)\)", batch):
        words = inner[1]
        if "select" in words:
            found.append(words)
            words = ""
        batch = batch[: inner.start()] + "{" + words + "}" + batch[inner.end() :]
    found += re.split(r"\bselect\b", batch)[1:]
    return [select.replace("{", "(").replace("}", ")") for select in found]


def forbidden(batch: str, layout: Layout) -> list[str]:
    return [f"{word[0] if isinstance(word, tuple) else word} is there" for word in re.findall(FORBIDDEN, batch)]


# Microsoft's page of table hints: a table has one hint of each group at most (error 1047).
HINTS = {
    "granularity": ("paglock", "nolock", "readcommittedlock", "rowlock", "tablock", "tablockx"),
    "isolation": ("holdlock", "nolock", "readcommitted", "repeatableread", "serializable"),
}
# The page has READCOMMITTEDLOCK among the granularities. NServiceBus and Rebus dequeue with this pair.
SHIPPED = {"readcommittedlock", "rowlock"}


def hints(batch: str, layout: Layout) -> list[str]:
    """A table has at most one hint of each group."""
    wrong = []
    for given in re.findall(r"\bwith \(((?:[^()]|\([^()]*\))*)\)", batch):
        words = {*re.findall(r"\w+", re.sub(r"\([^()]*\)", "", given))}
        for group, names in HINTS.items():
            of_group = words.intersection(names)
            if len(of_group) > 1 and of_group != SHIPPED:
                wrong.append(f"{' and '.join(sorted(of_group))} are both of {group}")
    return wrong


def applocks(batch: str, layout: Layout) -> list[str]:
    """An application lock belongs to a transaction, is that of one object, and is looked at after it was asked for."""
    wrong = []
    for given in re.findall(r"exec @granted = sp_getapplock\s+([^;]*)", batch):
        if "@LockOwner = N'Transaction'" not in given:
            wrong.append("an application lock of the session")
        of_all = "@Resource = N'tablequeue'" in given
        if not of_all and not re.search(r"@resource nvarchar\(255\) = concat\(N'[^']+', object_id\(N'", batch):
            wrong.append("an application lock that is not of one object")
        if not re.search(r"@granted (<|>=) 0|@granted as|select @granted|iif\(@granted", batch):
            wrong.append("an application lock that nobody looks at")
    return wrong


def pages(batch: str, layout: Layout) -> list[str]:
    """The indexes of a log, and of its runs, are locked by row: READPAST would pass over a whole page otherwise."""
    if "__holes primary key" not in batch:
        return []
    found = re.findall(r"\S+ primary key clustered\b[^\n]*|\bcreate index \S+ on\b[^\n]*", batch)
    return [f"pages are locked: {line}" for line in found if "__holes" not in line and "_locks = off" not in line]


def identities(batch: str, layout: Layout) -> list[str]:
    """SCOPE_IDENTITY() is that of the last insert in the scope, which may be one by OUTPUT ... INTO."""
    return [f"{word} is there" for word in re.findall(r"\bscope_identity\(\)|@@identity|\bident_current\b", batch)]


# A statement that deletes: from a table, from an alias of one, or from the rows of a WITH.
DELETE = re.compile(r"delete (?:top \(\S+\) )?from (\S+)(?:\n(?!where)(?:.*\n)*?from (\S+))?")


def notes(batch: str, grouped: Iterable[str]) -> list[str]:
    """A statement that inserts into a grouped queue, deletes from it, or blocks a message, notes the groups; a dead
    letter holds none."""
    wrong = []
    for table in grouped:
        changes = len(re.findall(rf"\binsert into {table} \((?![^;]*\n    'dead')", batch))
        for statement in statements(batch):
            changes += deletes_from(statement) == table and not statement.endswith("state = 'dead'")
            changes += blocks(statement) and f"from {table} " in statement
        if batch.count(f"into {table}__turns") < changes:
            wrong.append(f"{table} without its notes")
    return wrong


def blocks(statement: str) -> bool:
    """Return whether a statement sets the state of messages to blocked, or may do so."""
    changed = re.match(r"update \w+\nset (.*?)\n(?:output|from|where)\b", statement, re.DOTALL)
    return changed is not None and "'blocked'" in changed[1]


def deletes_from(statement: str) -> str | None:
    """Return the table from which a statement deletes."""
    of_rows = re.match(r"with (\w+) as \([\s\S]*?\bfrom (\S+)[\s\S]*\ndelete from \1\b", statement)
    deleted = DELETE.match(statement)
    return of_rows[2] if of_rows else deleted and (deleted[2] or deleted[1])


def triggers(batch: str, layout: Layout) -> list[str]:
    """A DELETE from a table with a trigger on DELETE has no OUTPUT without INTO (error 334)."""
    there = [statement for statement in statements(batch) if deletes_from(statement) == "tq_work"]
    return [f"an answer of {statement[:60]}" for statement in there if says(statement)]


def executed(batch: str, layout: Layout) -> list[str]:
    """Return the procedures of the queue that a batch executes."""
    return re.findall(r"\bexec (?:@\w+ = )?(?:\w+\.)?(tq_\w+)", batch)


def locks(batch: str, layout: Layout) -> list[str]:
    """Rows that are selected for a change are locked row by row, and locked rows are skipped."""
    wrong = []
    for name, body, _ in CTE.findall(batch):
        hints = re.search(r" with \((.*)\)", body)
        missing = [hint for hint in LOCKS if not hints or not re.search(rf"\b{hint}\b", hints[1])]
        wrong += [f"{name} without {hint}" for hint in missing]
    return wrong


def bounded(batch: str, layout: Layout) -> list[str]:
    wrong = [f"{name} without top (@n)" for name, body, _ in CTE.findall(batch) if "select top (@n)" not in body]
    if "top (@n)" in batch and "declare @n bigint = :n" not in batch:
        wrong.append("@n is not :n")
    return wrong


def orders(batch: str, layout: Layout) -> list[str]:
    """Each ORDER BY on a table of the queue has an index with these columns; if an index is hinted, that one."""
    wrong = []
    # A window sorts what was read, and locks nothing.
    for select in selects(re.sub(r"\bover \([^()]*\)", "", batch)):
        order = re.search(r"order by ([^)\n;]+)", select)
        table = re.search(r"\bfrom (\S+)", select)
        # A GROUP BY sorts in any case, and locks nothing.
        if not order or not table or table[1] not in layout.tables or "group by" in select:
            continue
        wanted = [re.sub(r"^\w+\.", "", column) for column in order[1].split(", ")]
        select = select[: order.end()]
        hinted = re.search(r"index \((\w+)\)", select)
        names = [hinted[1]] if hinted else [name for name, index in layout.indexes.items() if index[0] == table[1]]
        if not any(_serves(layout.indexes[name][1], wanted, select) for name in names if name in layout.indexes):
            wrong.append(f"no index for order by {order[1]}")
    return wrong


def _serves(columns: list[str], wanted: list[str], select: str) -> bool:
    # A column that is compared by equality may be left out.
    rest = [column for column in columns if not re.search(rf"\b{column} = ", select)]
    backwards = [column.removesuffix(" desc") if " desc" in column else f"{column} desc" for column in wanted]
    return rest[: len(wanted)] == wanted or rest[: len(wanted)] == backwards


def filters(batch: str, layout: Layout) -> list[str]:
    """A statement with an index hint contains the exact filter of that index (error 8622)."""
    wrong = []
    for select in re.split(r"\b(?:select|join)\b", batch):
        for name in re.findall(r"index \((\w+)\)", select):
            if name not in layout.indexes:
                wrong.append(f"no index {name}")
                continue
            table, _, predicate = layout.indexes[name]
            if f"from {table} " not in select:
                wrong.append(f"{name} is not of the table")
            if predicate not in re.sub(r"\b\w+\.(?=\w)", "", select):
                wrong.append(f"{name} has the filter {predicate}")
        # The table of the keys that stay taken for a time has them as its primary key, without a filter.
        keyed = "__keys " not in select and re.search(r"(?<!set )\bdedup_key (=|in)", select)
        if keyed and "@batch" not in select.partition("where")[0] and "dedup_key is not null" not in select:
            wrong.append("the filter of the keys is missing")
    return wrong


def variables(batch: str, layout: Layout) -> list[str]:
    """Each variable is declared once, before its use, and used. Each parameter occurs once, with its type."""
    wrong = []
    declared = re.findall(r"(?:declare|create procedure \S+) (@\w+)", batch)
    wrong += [f"{name} twice" for name in {*declared} if declared.count(name) > 1]
    for name in {*re.findall(r"(?<!@)(@[a-z]\w*)", batch)}:
        if name in declared:
            uses = [found.start() for found in re.finditer(rf"{name}\b", batch)]
            if len(uses) == 1:
                wrong.append(f"{name} is not used")
            if not re.search(r"(?:declare|create procedure \S+) $", batch[: uses[0]]):
                wrong.append(f"{name} before its declaration")
        else:
            wrong.append(f"{name} is not declared")
    parameters = re.findall(r":([a-z]\w*)", batch)
    wrong += [f":{name} twice" for name in {*parameters} if parameters.count(name) > 1]
    typed = re.findall(r"(?:cast\(|declare @\w+ \w+ = ):([a-z]\w*)", batch)
    wrong += [f":{name} has no type" for name in {*parameters} - {*typed} - {"schema_version"}]
    return wrong


def columns(batch: str, layout: Layout) -> list[str]:
    """inserted and deleted have the columns of the changed table, or those that a WITH selects."""
    wrong = []
    everywhere = {column for names in layout.tables.values() for column in names}
    for statement in statements(batch):
        there = everywhere
        for _, body, _ in CTE.findall(statement):
            selected = re.sub(r"select( top \(@n\))?", "", body.partition("from ")[0])
            there = set(re.findall(r"\w+", selected))
            wrong += [f"{column} is no column" for column in there - everywhere]
            changed = re.search(r"\nset (.*?)\noutput", statement, re.DOTALL)
            names = re.findall(r"(?:^|\n    )(\w+) = ", changed[1]) if changed else []
            names += re.findall(r", (\w+) = ", changed[1].partition("\n")[0]) if changed else []
            wrong += [f"{name} is set and not selected" for name in names if name not in there]
        for column in re.findall(r"\b(?:inserted|deleted)\.(\w+)", statement):
            if column not in there:
                wrong.append(f"{column} is not selected")
    return wrong


def looks(batch: str, layout: Layout) -> list[str]:
    """A check for the existence of a row waits for a session that is inserting it, also under
    READ_COMMITTED_SNAPSHOT."""
    found = re.findall(r"from (\S+) as there\b(.*?)\s+where there\.(dedup_key|writer|name) = ", batch)
    return [f"{table} without readcommittedlock" for table, hints, _ in found if "readcommittedlock" not in hints]


def times(batch: str, layout: Layout) -> list[str]:
    """The time of a key begins with its message: the statement that took the key ran before, and may have waited."""
    named = re.search(r"\bupdate taken\nset id = ", batch)
    return ["the time of a key without that of its message"] if named and "message.pushed_at)" not in batch else []


def ranges(batch: str, layout: Layout) -> list[str]:
    """A claim of a range inserts none that ends before it begins: at the end of the log there is nothing to claim."""
    claims = [each for each in statements(batch) if re.search(r"\bselect\s+@begins, @ends,", each)]
    return ["a range of no messages" for claim in claims if "@begins <= @ends" not in claim]


def outputs(batch: str, layout: Layout) -> list[str]:
    """OUTPUT ... INTO has as many values as columns, and fills every column that is not nullable."""
    wrong = []
    for statement in statements(batch):
        for values, table, names in re.findall(r"output(.*?)\s+into (\S+) \((.*?)\)\n", statement, re.DOTALL):
            given, wanted = _listed(values), _listed(names)
            if len(given) != len(wanted):
                wrong.append(f"{len(given)} values into {len(wanted)} columns of {table}")
            known = layout.tables.get(table, wanted)
            wrong += [f"{table} has no column {name}" for name in wanted if name not in known]
            if table.startswith("tq_") and "payload" in known and "payload" not in wanted:
                wrong.append(f"{table} without its payload")
        for table, names, values in re.findall(
            r"insert into (\S+) \((.*?)\)\n.*?select\n?(.*?)\n(?:from|where) ", statement, re.DOTALL
        ):
            given, wanted = _listed(values.removeprefix(" distinct")), _listed(names)
            if len(given) != len(wanted):
                wrong.append(f"{len(given)} values into {len(wanted)} columns of {table}")
    return wrong


def _listed(text: str) -> list[str]:
    """Split at the commas outside parentheses."""
    items, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            items.append("")
        else:
            items[-1] += character
    return [item.strip() for item in items]


def answers(batch: str, layout: Layout) -> list[str]:
    """The last statement of a batch has its only result, because drivers miss the errors of later statements."""
    return ["an answer before the last statement"] if any(map(says, statements(batch)[:-1])) else []


def says(statement: str) -> bool:
    """Return whether a statement returns rows: a select does that sets no variable, and an OUTPUT without INTO."""
    outputs = re.findall(r"^output\b", statement, re.MULTILINE)
    kept = re.findall(r"^into |^output .* into ", statement, re.MULTILINE)
    return bool(re.match(r"select\b(?! (top \(1\) )?@\w+ = )", statement)) or len(outputs) > len(kept)


def answer(batch: str) -> list[str]:
    """Return the expressions of the result columns of a batch."""
    last = statements(batch)[-1]
    word = "select" if last.startswith("select") else "output"
    lists = re.findall(rf"^{word}\b(.*?)(?=^(?:from|where|into|output|select)\b|\Z)", last, re.MULTILINE | re.DOTALL)
    return _listed(re.sub(r"\A (distinct |top \(\S+\)\s)", "", lists[-1])) if says(last) else []


def filtered(batch: str, layout: Layout) -> list[str]:
    """A filter keeps its literal under PARAMETERIZATION FORCED only in statements with a variable or RECOMPILE."""
    return [
        f"{statement[:60]} may be parameterized"
        for statement in statements(batch)
        if re.match(r"select|insert|update|delete|with", statement)
        and re.search(r"\bstate (?:=|in) \(?'", statement)
        and not re.search(r"(?<!@)@\w|option \(recompile\)", statement)
    ]


def literals(batch: str, layout: Layout) -> list[str]:
    """No user input becomes part of the SQL: parameters are not quoted, and EXEC takes none."""
    wrong = [f"{quoted} has a parameter" for quoted in re.findall(r"'[^'\n]*'", batch) if re.search(r":[a-z]", quoted)]
    wrong += [f"exec {text} has a variable" for text in re.findall(r"\bexec (\(.*\))", batch) if "@" in text]
    wrong += [f"{character} is a parameter to a driver" for character in "%?" if character in batch]
    return wrong


def fence(batch: str, layout: Layout) -> list[str]:
    """Each change by an operation that finishes messages checks the token."""
    return [
        f"no token: {statement[:60]}"
        for statement in statements(batch)
        if re.match(r"update|delete|with", statement) and not re.search(r"\btoken = @token\b", _conditions(statement))
    ]


def kept(batch: str, layout: Layout) -> list[str]:
    """UPDLOCK may keep a lock of each row that it looks at: what a condition could leave out is not among the ids."""
    return [
        f"a lock of what is not held: {statement[:60]}"
        for statement in statements(batch)
        if re.search(r"\bupdlock, (?:readcommittedlock, )?forceseek\b", statement)
        and re.search(r"\band (?:message\.)?(?:token|state|\(?message\.token)\b", statement)
        and "openjson(@ids)" in statement
        and "insert into tq_" not in statement
    ]


def _conditions(statement: str) -> str:
    return statement.rpartition("\nwhere ")[2]


RULES: tuple[Callable[[str, Layout], list[str]], ...] = (
    forbidden,
    hints,
    applocks,
    pages,
    identities,
    bounded,
    orders,
    filters,
    variables,
    columns,
    looks,
    times,
    ranges,
    outputs,
    answers,
    filtered,
    kept,
    literals,
)
