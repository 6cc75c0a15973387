"""Packets: the statements of a transaction in one round trip, with its COMMIT among them.

The server runs them by itself, so what they lock is free again whatever becomes of the client: suspended, cut off, or
behind a slow way. What one statement finds for the next ones is in variables of the session; a statement may say so by
itself, or `put` puts a variable in the place of a parameter. A packet is written once for a queue, by `Table.bound`: a
call puts its values in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.connection import commits_each, undone
from tablequeue.engines.params import Params
from tablequeue.engines.texts import Row


def put(statement: str, **expressions: str) -> str:
    """Return the statement with SQL, such as a variable, in the place of the parameters that `expressions` names."""
    for name, expression in expressions.items():
        statement = statement.replace(f"%({name})s", expression)
    return statement


def stored(statement: str, **values: str) -> str:
    """Return the statement such that variables get values of its rows: `tq_n="count(*)"` is the number, in @tq_n."""
    names = ", ".join(f"@{name}" for name in values)
    return f"select {', '.join(values.values())} into {names} from (\n{statement}\n) as found"  # noqa: S608 (our texts)


def without_lock(statement: str) -> str:
    """Return a statement that locks what it selects as one that only looks."""
    for words in ("skip locked", "for update", "lock in share mode"):
        statement = statement.removesuffix(words).rstrip()
    return statement


def kept(statement: str, **more: str) -> str:
    """Return the statement such that @tq_ids gets the ids that it finds, as JSON, and @tq_n their number."""
    return stored(statement, tq_ids="json_arrayagg(id)", tq_n="count(*)", **more)


def if_any(variable: str, statement: str) -> list[str]:
    """Return what runs the statement only if the variable is not null: it costs a third of one that finds nothing.

    The values of its parameters are numbers, because it is a literal; so in `limited`.
    """
    prepared = f"set @tq_statement = if({variable} is null, 'do 0', {_literal(statement)})"
    return [prepared, "prepare tq from @tq_statement", "execute tq", "deallocate prepare tq"]


def limited(statement: str) -> list[str]:
    """Return what runs the statement, whose `limit ?` is @tq_n: no plain statement takes a variable there."""
    return [f"prepare tq from {_literal(statement)}", "execute tq using @tq_n", "deallocate prepare tq"]


def _literal(statement: str) -> str:
    return "'" + statement.replace("\\", "\\\\").replace("'", "''") + "'"


def together(cursor: Cursor, params: Params, inside: Iterable[str], after: Sequence[str] = ()) -> list[Sequence[Row]]:
    """Run all statements `inside` or none, and then those `after` the commit. Return the rows of those that have some.

    The connection is one of ours. If a transaction is open on it, they are a part of that.
    """
    ours = commits_each(cursor.connection)
    begin, end = ("begin", "commit") if ours else ("savepoint tablequeue", "release savepoint tablequeue")
    with undone(cursor, whole=ours):
        found: list[Sequence[Row]] = cursor.packet([begin, *inside, end, *after], params)
        return found


def sent(cursor: Cursor, params: Params, statements: Sequence[str]) -> list[Sequence[Row]]:
    """Run statements in one round trip. Return the rows of those that have some."""
    found: list[Sequence[Row]] = cursor.packet(statements, params)
    return found
