"""A call in a caller's transaction locks the messages that it acted on and nothing else, at each isolation level.

Whether or not the transaction has read something before. `make test` runs the core, `make nightly` the whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from fnmatch import fnmatch
from typing import Any

import pytest

import tablequeue
from tablequeue.engines import runner
from tablequeue.engines.engine import Engine
from tests.matrix import FailingCursor, Ground, scene
from tests.matrix_others import others
from tests.matrix_rows import ACTS, COLUMNS
from tests.servers import Kind, Place, only
from tests.support import with_parts

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
# The level of a transaction for which none was chosen.
DEFAULT = {"postgresql": "READ COMMITTED", "mariadb": "REPEATABLE READ"}
# The core runs in so many tests, side by side.
SHARES = 4
# What may be found: the engine, the act, the line, and why.
EXCEPTIONS = [
    ("*", "pause", "holds up pause", "It is the pause of the same queue."),
    ("*", "pop*", "holds up move", "All messages are moved, so the one that it acted on too."),
    ("*", "take*", "holds up move", "All messages are moved, so the one that it acted on too."),
]

Cell = tuple[str, str]
"""An act and a design."""


def found_in(place: Place, kind: Kind, level: str, older: bool, cells: Iterable[Cell], **acting: Any) -> list[str]:
    """Return what is found in some cells, a line each, without what may be found."""
    found: list[str] = []
    caller = place.sa_engine().connect().execution_options(isolation_level=level)
    with scene(place, kind, **acting) as one, caller:
        for act, design in cells:
            lines = Ground(one, COLUMNS[design], ACTS[act]).wrong(caller, others, older)
            found += [f"{act}, {design}: {line}" for line in lines if acting or not _may_be(kind.name, act, line)]
    return found


def _may_be(*found: str) -> bool:
    return any(all(map(fnmatch, found, patterns)) for *patterns, _ in EXCEPTIONS)


def fitting(act: str) -> list[str]:
    return [design for design in COLUMNS if ACTS[act].fits(COLUMNS[design])]


def core(share: int, shares: int = SHARES) -> list[Cell]:
    """Each act with one of its designs: with another one from act to act."""
    cells = [(act, fitting(act)[place % len(fitting(act))]) for place, act in enumerate(ACTS)]
    return cells[share::shares]


@only("postgresql", "mariadb")
@pytest.mark.parametrize("share", range(SHARES))
def test_a_call_holds_up_nobody(place: Place, kind: Kind, share: int) -> None:
    # Statements of PostgreSQL lock the rows that they found, and no gaps between rows: every second act by day.
    cells = core(share)[:: 2 if kind.name == "postgresql" else 1]
    found = found_in(place, kind, DEFAULT[kind.name], True, cells)
    assert not found, "\n".join(found)


@pytest.mark.nightly
@only("postgresql", "mariadb")
@pytest.mark.parametrize("older", [False, True], ids=["", "older"])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("design", COLUMNS)
def test_no_call_holds_up_anybody(place: Place, kind: Kind, design: str, level: str, older: bool) -> None:
    found = found_in(place, kind, level, older, [(act, design) for act in ACTS if design in fitting(act)])
    assert not found, "\n".join(found)


def check_refusals(place: Place, kind: Kind, cells: Iterable[Cell]) -> None:
    with scene(place, kind) as one, place.sa_engine().connect() as caller:
        for act, design in cells:
            if ACTS[act].refused:
                before, after = Ground(one, COLUMNS[design], ACTS[act]).refused(caller)
                assert after == before, f"{act}, {design}"


def test_a_refused_call_changes_nothing(place: Place, kind: Kind) -> None:
    """Also if the caller catches the error and commits."""
    check_refusals(place, kind, core(0, 1))


def check_failures(place: Place, kind: Kind, cells: Iterable[Cell]) -> None:
    """Have the server refuse each statement of a call in turn. The caller catches the error, and commits."""
    place.open().upgrade()  # it makes the catalogue
    acting = place.open_with(failing(kind.engine_class))
    with scene(place, kind, acting) as one, place.sa_engine().connect() as caller:
        found = []
        for act, design in cells:
            if act != "batch by hand":  # which has opened a batch of its own before
                before, after = Ground(one, COLUMNS[design], ACTS[act]).failed(caller)
                wrong = [number for number, content in enumerate(after, start=1) if content != before]
                found += [f"{act}, {design}: it changes something if one of its statements {wrong} fails"] * bool(wrong)
        assert not found, "\n".join(found)


def failing(engine: type[Engine]) -> type[Engine]:
    """In a caller's transaction the server refuses the statement number `fails`, as far as there are so many."""

    class Failing(engine):  # type: ignore[misc, valid-type]
        fails = 0

        def join(self, dbapi: Any) -> Any:
            return FailingCursor(super().join(dbapi), self)

    return Failing


def test_a_call_that_fails_half_way_changes_nothing(place: Place, kind: Kind) -> None:
    """Of each act on MariaDB; every second one on PostgreSQL, where an error undoes the whole call."""
    check_failures(place, kind, core(0, 2 if kind.name == "postgresql" else 1))


@pytest.mark.nightly
@pytest.mark.parametrize("design", COLUMNS)
def test_no_call_that_fails_half_way_changes_anything(place: Place, kind: Kind, design: str) -> None:
    check_failures(place, kind, [(act, design) for act in ACTS if design in fitting(act)])


@pytest.mark.parametrize("check", [check_refusals, check_failures])
def test_a_call_without_a_savepoint_is_detected(
    place: Place, kind: Kind, check: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "whole", lambda *_: nullcontext())
    act = "batch with a taken key" if check is check_refusals else "cancel by a function"
    if check is check_failures and kind.name != "sqlite":
        act = "pop completing" if kind.name == "mariadb" else pytest.skip("An error undoes all.")
    with pytest.raises(AssertionError):
        check(place, kind, [(act, "batches")])


@pytest.mark.nightly
@pytest.mark.parametrize("design", COLUMNS)
def test_no_refused_call_changes_anything(place: Place, kind: Kind, design: str) -> None:
    check_refusals(place, kind, [(act, design) for act in ACTS if design in fitting(act)])


def test_each_verb_in_a_transaction_has_a_row() -> None:
    public = [each for name in tablequeue.__all__ if inspect.isclass(each := getattr(tablequeue, name))]
    verbs = {
        method.__qualname__
        for each in public
        for _, method in inspect.getmembers(each, inspect.isfunction)
        if "connection" in inspect.signature(method).parameters and not method.__name__.startswith("_")
    }
    assert verbs == {act.verb for act in ACTS.values()}


def locks_what_was_lost(engine: type[Engine]) -> type[Engine]:
    """Locks the messages by their ids, and asks whose they are afterwards."""

    class LocksFirst(type(engine.messages)):  # type: ignore[misc]
        def complete(self, cursor: Any, table: Any, params: Any) -> Any:
            ids = ", ".join(map(str, table.engine.load_ids(params["ids"])))
            cursor.execute(f"select id from {table.engine.words(table)['queue']} where id in ({ids}) for update")  # noqa: S608 (our names)
            cursor.fetchall()
            return super().complete(cursor, table, params)

    return with_parts(engine, {"messages": LocksFirst})


def locks_all_that_wait(engine: type[Engine]) -> type[Engine]:
    """Locks each message that it looks at."""

    class LocksAll(type(engine.messages)):  # type: ignore[misc]
        def push(self, cursor: Any, table: Any, params: Any) -> Any:
            cursor.execute(f"select id from {table.engine.words(table)['queue']} for update")  # noqa: S608 (our names)
            cursor.fetchall()
            return super().push(cursor, table, params)

    return with_parts(engine, {"messages": LocksAll})


def locks_the_catalogue(engine: type[Engine]) -> type[Engine]:
    """Changes the row of the queue, which others need who do something else with it."""

    class LocksTheCatalogue(type(engine.messages)):  # type: ignore[misc]
        def push(self, cursor: Any, table: Any, params: Any) -> Any:
            cursor.execute(f"update {table.engine.words(table)['catalogue']} set definition = definition")  # noqa: S608 (our names)
            return super().push(cursor, table, params)

    return with_parts(engine, {"messages": LocksTheCatalogue})


@only("postgresql", "mariadb")
@pytest.mark.parametrize(
    ("mutant", "act", "found"),
    [
        (locks_what_was_lost, "complete of a lost claim", "locks"),
        (locks_all_that_wait, "push", "holds up complete"),
        (locks_the_catalogue, "push", "holds up alter"),
    ],
)
def test_a_mutant_is_detected(
    place: Place, kind: Kind, mutant: Callable[[type[Engine]], type[Engine]], act: str, found: str
) -> None:
    acting = place.open_with(mutant(kind.engine_class))
    assert found in "\n".join(found_in(place, kind, "READ COMMITTED", False, [(act, "fifo")], acting=acting))
