"""Stored procedures of a queue: any language can use the queue, and rights are granted by role.

Each is a named template in a file of the engine's folder `procedures/`. It contains the SQL texts that the Python
verbs run:

- `{word}` is one of the `{words}` of the engine's texts, or of `_words` below, or a part;
- `{sql claim}` is the statements of that text, `{sql sweep.lock}` those of a section of it. Their `:name` parameters
  become the procedure's own (`p_name`, or `@p_name` on SQL Server), except those with a value, as in
  `{sql sweep n=1000}`;
- `{sql claim into=@claimed}`, on SQL Server, inserts the rows into that table variable; `into=nothing` drops them;
- the lines from `-- [keep not grouped]` to `-- [end]` are only in procedures of such queues; see `chosen` in texts.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from tablequeue.engines.base import EngineBase
from tablequeue.engines.columns import listed
from tablequeue.engines.conditions import conditions
from tablequeue.engines.connection import Cursor
from tablequeue.engines.procedure_list import PROCEDURES
from tablequeue.engines.procedure_syntax import ProcedureSyntax
from tablequeue.engines.table import Table
from tablequeue.engines.texts import chosen, meets, texts_in
from tablequeue.errors import BadInput, DuplicateKey, LeaseLost, TablequeueError
from tablequeue.model.definition import Definition
from tablequeue.model.pacing import LARGEST, LONGEST, Backoff

# The procedures that each kind of role may call.
ROLES = {
    kind: tuple(name for name, procedure in PROCEDURES.items() if procedure.role == kind)
    for kind in ("producer", "consumer", "observer")
}
VERBS = tuple(file for files in ROLES.values() for file in files if not file.startswith("topic_"))
# The numbers of their errors; PostgreSQL has SQLSTATEs instead. The text is a sentence of cause and one of remedy.
RAISED: Mapping[int, type[TablequeueError]] = {51001: BadInput, 51002: DuplicateKey, 51003: LeaseLost}
# Templates that create no procedure.
_OTHERS = ("grant", "grant_schema", "drop", "before_all", "after_all")
# The features of a definition with which a queue has no procedures.
_REFUSED = ("batches", "dependencies")
# e to this power is about the largest float.
_LARGEST_EXPONENT = 700


def procedures(engine: EngineBase, table: Table) -> str:
    """Return the text that creates or replaces all procedures of a queue. Only their owner may call new ones.

    On PostgreSQL it drops those of the same names with other parameters, which an older tablequeue made.
    """
    syntax = _syntax(engine)
    check(table)
    engine = _placed(engine, syntax.schema)
    files, available = _files(engine, table.definition), templates(engine.name)
    names = {"names": ", ".join(f"'{table.table_name}_{verb_of(file)}'" for file in files)}
    before, after = (
        _rendered(engine, file, table, names) if file in available else "" for file in ("before_all", "after_all")
    )
    dropped = dropping(engine, table) if engine.dialect.name in syntax.dropped_first else ""
    made = (_rendered(engine, file, table) for file in files)
    return syntax.between.join(filter(None, [dropped, before, *made, after]))


def check(table: Table) -> None:
    """Refuse a queue that cannot have procedures, because Python ends its batches and its dependencies."""
    for feature in _REFUSED:
        if getattr(table.definition, feature, False):
            raise BadInput(
                f"A queue with {feature} has no stored procedures, and {table.name!r} would have both.",
                f"Use the verbs; or a queue without {feature} for other languages.",
            )


def grants(engine: EngineBase, table: Table, roles: Mapping[str, Sequence[str]]) -> str:
    """Return the text that grants roles of the database the procedures. `roles` has the role names of each kind."""
    engine = _placed(engine, _syntax(engine).schema)
    parts = [f"-- The rights on the procedures of the queue {table.name}. Roles need none on its tables."]
    for kind, names in roles.items():
        called = [verb_of(file) for file in ROLES[kind] if file in _files(engine, table.definition)]
        for role in map(_syntax(engine).role, names):
            parts.append(f"-- As {kind}: {', '.join(called)}.")
            wanted = [("grant_schema", {"role": role}), *(("grant", {"role": role, "verb": verb}) for verb in called)]
            available = templates(engine.name)
            parts.extend(_rendered(engine, file, table, more) for file, more in wanted if file in available)
    return "\n".join(parts)


def dropping(engine: EngineBase, table: Table) -> str:
    """Return the text that drops the existing procedures of a queue; "" on an engine without procedures."""
    if engine.procedure_syntax is None:
        return ""
    files = reversed(_files(engine, table.definition))
    lines = (_rendered(engine, "drop", table, {"verb": verb_of(file)}) for file in files)
    return "\n".join(["-- Drop the procedures of a queue that exist.", *lines])


def install(engine: EngineBase, cursor: Cursor, table: Table) -> list[str]:
    """Create or replace the procedures of a queue. Return the names of those that roles may call."""
    syntax = _syntax(engine)
    if table.definition.kind not in syntax.kinds:
        raise BadInput(
            f"{engine.name} has no stored procedures of a {table.definition.kind}.",
            "Use the SQL of the operations: `tablequeue sql`.",
        )
    for statement in engine.split(procedures(engine, table)):
        cursor.execute(statement)  # without parameters: a colon or a percent sign stays as it is
    return [f"{table.table_name}_{verb_of(file)}" for file in _files(engine, table.definition) if PROCEDURES[file].role]


def are_there(engine: EngineBase, cursor: Cursor, table: Table) -> bool:
    """Return whether the queue has stored procedures."""
    syntax = engine.procedure_syntax
    if syntax is None:
        return False
    words = engine.words(table)
    cursor.execute(re.sub(r"\{(\w+)\}", lambda match: words[match[1]], syntax.there))
    return bool(cursor.fetchall())


def drop(engine: EngineBase, cursor: Cursor, table: Table) -> None:
    if not are_there(engine, cursor, table):
        return
    for statement in engine.split(dropping(engine, table)):
        cursor.execute(statement)


def procedure_for(engine: EngineBase, table: Table, verb: str) -> str | None:
    """Return the name of the procedure that is a verb of a queue; None if there is none."""
    if engine.procedure_syntax is None or verb not in _files(engine, table.definition) or not PROCEDURES[verb].role:
        return None
    return f"{table.table_name}_{verb}"


def verb_of(file: str) -> str:
    """Return the verb of a template, which is the end of the procedure's name."""
    return file.removeprefix("topic_")


def raised(number: int, words: str) -> TablequeueError | None:
    """Return the error that a procedure raised; None if the number is not one of theirs.

    `words` is its text without the full stop at the end.
    """
    if number not in RAISED:
        return None
    cause, _, remedy = words.rpartition(". ")
    return RAISED[number](f"{cause}.", f"{remedy}.")


def templates(engine: str) -> list[str]:
    """Return the templates of an engine. A procedure comes before those that call it."""
    named = texts_in(engine, "procedures").keys()
    return [*sorted(named & {*_OTHERS}), *(name for name in PROCEDURES if name in named)]


def template(engine: str, name: str) -> str:
    return texts_in(engine, "procedures")[name]


# -- private ---------------------------------------------------------------------------------------------------------


def _syntax(engine: EngineBase) -> ProcedureSyntax:
    if engine.procedure_syntax is None:
        raise BadInput(f"{engine.name} has no stored procedures.", "Use the SQL of the operations: `tablequeue sql`.")
    return engine.procedure_syntax


def _placed(engine: EngineBase, schema: str | None) -> EngineBase:
    return engine if engine.place or schema is None else type(engine)(engine.dialect, schema)


def _files(engine: EngineBase, definition: Definition) -> list[str]:
    met = conditions(definition)
    if definition.kind not in _syntax(engine).kinds or met & {*_REFUSED}:
        return []
    made = ((name, PROCEDURES[name]) for name in templates(engine.name) if name in PROCEDURES)
    return [name for name, one in made if definition.kind in one.of.split() and meets(one.needs, met)]


_SQL = re.compile(r"\{sql ([\w.]+)((?: \w+=[^\s}]+)*)\}")


def _rendered(engine: EngineBase, file: str, table: Table, more: Mapping[str, str] | None = None) -> str:
    definition, syntax = table.definition, _syntax(engine)
    origin = table.name.replace("'", "''")
    words = engine.words(table) | _words(definition) | {"origin": f"'{origin}'"} | dict(more or {})
    lines = []
    text = listed(template(engine.name, file), engine.expressions)
    for line in chosen(text, conditions(definition)):
        margin = "\n" + line[: len(line) - len(line.lstrip())]

        def statement(match: re.Match[str], margin: str = margin) -> str:
            values = {key: words.get(value, value) for key, _, value in (p.partition("=") for p in match[2].split())}
            text = engine.render(match[1], table, values.get("state", "ready"), _syntax(engine).words)
            text = ";\n".join(engine.split(text))
            if "into" in values:
                text = syntax.kept(text, values["into"])
            return _bound(engine, text, values).replace("\n", margin)

        lines.append(engine.filled_in(_SQL.sub(statement, line), words, table))
    # The words of the engine may have parameters too: the clock has one.
    return "\n".join(_bound(engine, line, {}) for line in lines).strip()


def _bound(engine: EngineBase, text: str, values: Mapping[str, str]) -> str:
    """Replace each `:name` parameter of the text by its value, or by the procedure's own parameter."""
    form = _syntax(engine).parameter
    return re.sub(r"(?<![:\w]):([a-z]\w*)", lambda match: values.get(match[1], form.format(match[1])), text)


def _words(definition: Definition) -> dict[str, str]:
    backoff = definition.backoff
    return {
        "order": definition.order,
        "lease": repr(float(definition.lease)),
        "max_attempts": str(definition.max_attempts),
        "retention": repr(float(definition.retention or 0)),
        "base": repr(float(backoff.base)),
        "factor": repr(float(backoff.factor)),
        "cap": repr(float(backoff.cap)),
        "jitter": repr(float(backoff.jitter)),
        "steps": str(_steps(backoff)),
        "longest": str(int(LONGEST)),
        "largest": str(LARGEST),
    }


def _steps(backoff: Backoff) -> int:
    """Return after how many attempts the back-off stays the same, at the cap or at zero.

    The procedures raise the factor to no higher power, so that it cannot overflow.
    """
    growth = math.log(backoff.factor)
    if growth == 0 or backoff.base == 0:
        return 0
    end = math.log(backoff.cap / backoff.base) if growth > 0 else -_LARGEST_EXPONENT
    return max(0, min(math.ceil(end / growth), int(_LARGEST_EXPONENT / abs(growth))))
