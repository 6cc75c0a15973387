"""The `.sql` files: their texts, the statements in them, and the order of claimed rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from tablequeue.definition import Definition
from tablequeue.errors import BadInput
from tablequeue.message import DUE_AT, ID, PRIORITY

Row = Sequence[Any]

# Claimed rows in the order of the queue, for the database may return them in any. None: as tuples, by id.
RANKS: Mapping[str, Callable[[Row], Any] | None] = {
    "heap": None,
    "fifo": None,
    "lifo": lambda row: -row[ID],
    "due": lambda row: (row[DUE_AT], row[ID]),
    "priority": lambda row: (-row[PRIORITY], row[ID]),
}


class Client(NamedTuple):
    """The program of the database that runs what is printed; see cli/values.py."""

    name: str
    whole: str
    """How it runs several statements as one transaction, in a sentence."""
    values: Mapping[str, str] = {}
    """Values of parameters as its SQL writes them, where it writes them otherwise than others do; `stage.key` is that
    of one operation."""


@cache
def sql_text(engine: str, operation: str) -> str:
    """The `.sql` file of one operation, header and all."""
    return resources.files("tablequeue.engines").joinpath(engine, "sql", f"{operation}.sql").read_text("utf-8")


@cache
def operations_of(engine: str) -> tuple[str, ...]:
    folder = resources.files("tablequeue.engines").joinpath(engine, "sql")
    return tuple(sorted(file.name.removesuffix(".sql") for file in folder.iterdir() if file.name.endswith(".sql")))


def chosen(text: str, there: set[str]) -> Iterator[str]:
    """Return the lines for queues that meet the conditions `there`.

    The lines from `-- [keep at_least_once]`, or `-- [not grouped]`, to `-- [end]` are for such queues only.
    """
    wanted = True
    for line in text.splitlines():
        if mark := re.fullmatch(r"\s*-- \[(not )?([\w ]+)\]", line):
            wanted = mark[2] == "end" or (there >= {*mark[2].split()}) is (mark[1] is None)
        elif wanted:
            yield line


def statements_in(text: str) -> list[str]:
    """The statements of a file: comments gone, split at a semicolon before a line that is not indented.

    So the lines of a trigger's or a function's body are indented, to the last.
    """
    bare = re.sub(r"(?m)^\s*--.*\n?", "", text)
    return [statement for part in re.split(r";\s*(?:\n(?=\S)|\Z)", bare) if (statement := part.strip())]


def ready_states(definition: Definition) -> str:
    """What the index of a claim holds. A due queue has the scheduled messages in it: no sweep need come first."""
    return "state in ('ready', 'scheduled')" if definition.order == "due" else "state = 'ready'"


def compile_text(text: str, dialect: Dialect) -> str:
    """SQLAlchemy's rendering of `:name` parameters in a dialect's paramstyle."""
    return str(sa.text(text).compile(dialect=dialect))


def quoted_role(quotes: str, name: str) -> str:
    """A role's name between `quotes`; none that could end them is accepted."""
    if not re.fullmatch(r"[\w][\w.$@ \\-]{0,127}", name):
        raise BadInput(f"{name!r} cannot name a role.", "Use letters, digits, and _ . $ @ - after the first.")
    return f"{quotes[0]}{name}{quotes[1]}"
