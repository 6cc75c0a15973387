"""The declaration of an operation: what it does, its texts and its result, once, where the operation is defined.

Most operations run the text of their name, and return its rows in some shape. Each of them is one expression:

    told = by_text(Effect.READ, ids)

An algorithm is a method with `@operation(Effect.WRITE)`. A method that overrides an operation has its declaration; it
may change the effect. `declaration` returns that of a bound operation, and of a function that is none, None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, overload

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.table import Statements, Table
from tablequeue.engines.texts import Row

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
TableT = TypeVar("TableT", bound=Statements)
Shape = Callable[[Cursor], T]
"""What a cursor has after the statements of a text, as the result of the operation."""
NO_TEXTS: Mapping[str, str] = MappingProxyType({})


class Effect(Enum):
    """What an operation does, and whether it needs a transaction around it."""

    READ = "changes nothing; runs in autocommit"
    UPKEEP = "as WRITE, and if it runs twice, all is as if it had run once"
    WRITE = "changes messages; on a server it is one statement, or sees to its transaction by itself"
    STEP = "changes messages or rows about them, as a part of a transaction"
    DDL = "makes, changes or drops tables, in a transaction where the database can"


class Operation(NamedTuple):
    """A declaration."""

    name: str
    effect: Effect
    texts: Mapping[str, str] = NO_TEXTS
    """The texts of its SQL, in the order in which they run, each with the `conditions` that a definition must meet.

    An engine need not have all of them. Empty: the text of the operation's name, if there is one.
    """
    others: str = ""
    """Texts that are not operations, which some engines or all of them run in addition or instead."""
    printed: str = ""
    """Its name in `tablequeue sql`, if that differs."""
    several: bool = False
    """Whether it needs a savepoint in a caller's transaction where each of its statements is undone by itself."""

    @property
    def repeatable(self) -> bool:
        """Whether it may run again if it is not known whether it took effect, because its connection broke."""
        return self.effect in (Effect.READ, Effect.UPKEEP)


def operation(
    effect: Effect, texts: Mapping[str, str] = NO_TEXTS, others: str = "", printed: str = "", *, several: bool = False
) -> Callable[[F], F]:
    """Declare a method as an operation; see `Operation`."""

    def declared(method: F) -> F:
        method.__dict__["declared"] = Operation(method.__name__, effect, texts, others, printed, several)
        return method

    return declared


def declaration(operation: Any) -> Operation | None:
    """Return the declaration of an operation; None for a function that is none, such as one of several operations."""
    return getattr(operation, "declared", None)


def inherit(part: type) -> None:
    """Give the methods of a new class the declarations of the operations that they override."""
    for name, method in vars(part).items():
        own, base = declaration(method), declaration(getattr(super(part, part), name, None))
        if base is not None and own is None:
            method.__dict__["declared"] = base
        elif base is not None and own is not None and own.name == name:
            method.__dict__["declared"] = base._replace(effect=own.effect)


def declarations(parts: Iterable[object]) -> dict[str, Operation]:
    """Return the declarations of all operations of the parts, by name. If several parts have one, that of the first."""
    found: dict[str, Operation] = {}
    for part in parts:
        for declared in (declaration(getattr(part, name)) for name in dir(part)):
            if declared is not None:
                found.setdefault(declared.name, declared)
    return found


# -- operations that only run a text -----------------------------------------------------------------------------------


class _ByText:
    """What becomes a method when its class is made, because then it has its name."""

    def __init__(self, shape: Shape[Any], text: str, declare: Callable[[Any], Any]) -> None:
        self.shape, self.text, self.declare = shape, text, declare

    def __set_name__(self, part: type, name: str) -> None:
        shape, text = self.shape, self.text or name

        def run(self: Any, cursor: Cursor, table: Statements, params: Params) -> Any:
            self._run(cursor, table, text, params)
            return shape(cursor)

        run.__name__, run.__qualname__ = name, f"{part.__qualname__}.{name}"
        setattr(part, name, self.declare(run))


@overload
def by_text(
    effect: Effect,
    shape: Shape[T],
    text: str = "",
    *,
    texts: Mapping[str, str] = ...,
    others: str = ...,
    several: bool = ...,
) -> Callable[[Any, Cursor, Table, Params], T]: ...
@overload
def by_text(
    effect: Effect,
    shape: Shape[T],
    text: str = "",
    *,
    texts: Mapping[str, str] = ...,
    others: str = ...,
    of: type[TableT],
) -> Callable[[Any, Cursor, TableT, Params], T]: ...
def by_text(
    effect: Effect,
    shape: Shape[Any],
    text: str = "",
    *,
    texts: Mapping[str, str] = NO_TEXTS,
    others: str = "",
    several: bool = False,
    of: type[Statements] = Table,
) -> Any:
    """Declare an operation that runs a text and returns what its last statement leaves in the cursor, in a shape.

    text   the name of the text; "": that of the operation.
    of     Statements, for an operation that concerns no queue.
    """
    return _ByText(shape, text, operation(effect, texts or ({text: ""} if text else texts), others, several=several))


def pairs(rows: Iterable[Row]) -> dict[Any, Any]:
    """Return rows of two columns as a dict."""
    return {row[0]: row[1] for row in rows}


# -- shapes ------------------------------------------------------------------------------------------------------------


def none(cursor: Cursor) -> None:
    """Return nothing."""


def rowcount(cursor: Cursor) -> int:
    return cursor.rowcount


def changed(cursor: Cursor) -> bool:
    return bool(cursor.rowcount > 0)


def rows(cursor: Cursor) -> list[Row]:
    return cursor.fetchall()


def count(cursor: Cursor) -> int:
    return len(cursor.fetchall())


def exists(cursor: Cursor) -> bool:
    return bool(cursor.fetchall())


def row(cursor: Cursor) -> Any:
    """Return the first row; None if there is no row."""
    return next(iter(cursor.fetchall()), None)


def first(cursor: Cursor) -> Any:
    """Return the first column of the first row; None if there is no row."""
    return next((row[0] for row in cursor.fetchall()), None)


def _column(cursor: Cursor) -> list[Any]:
    return [row[0] for row in cursor.fetchall()]


ids: Shape[list[int]] = _column
strings: Shape[list[str]] = _column


def distinct(cursor: Cursor) -> set[Any]:
    return {row[0] for row in cursor.fetchall()}


def mapping(cursor: Cursor) -> dict[Any, Any]:
    """Return the second column by the first one."""
    return pairs(cursor.fetchall())


def one(kind: Callable[..., T]) -> Shape[T | None]:
    """Return the first row, as `kind` makes it of its columns; None if there is no row."""
    return lambda cursor: next((kind(*row) for row in cursor.fetchall()), None)


def only(kind: Callable[..., T]) -> Shape[T]:
    """Return the only row, as `kind` makes it of its columns."""
    return lambda cursor: kind(*cursor.fetchall()[0])


def each(kind: Callable[..., T]) -> Shape[list[T]]:
    """Return all rows, as `kind` makes them of their columns."""
    return lambda cursor: [kind(*row) for row in cursor.fetchall()]
