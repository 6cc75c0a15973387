"""Statements that begin at marks find what whole ones find, at the latest when a whole one is made; see walks.py."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Queue
from tablequeue.engines import messages, walks
from tablequeue.engines.engine import Engine
from tablequeue.engines.printed_values import put
from tablequeue.engines.table import Table
from tablequeue.engines.walks import LATE_IDS, LATE_SECONDS, Share, Walks
from tablequeue.ext import context_of, waiter_of
from tests.servers import Kind, Place, only
from tests.support import claimed
from tests.test_low_water import CHECKS as BELOW_THE_MARK
from tests.test_low_water import with_table

pytestmark = only("postgresql")
SWEPT = 1_000
PATIENCE = 20


class Costly(Share):
    """Allows no statement to be whole until a test says so."""

    def took(self, began: float, rows: int = 0, *, whole: bool, kind: object = None) -> None: ...


def costly(table: Table) -> None:
    made = table.walks
    made.claims, made.sweeps, made.looks = Costly(inf), Costly(inf), Costly(inf)


def marked(engine: type[Engine]) -> type[Engine]:
    class Marked(engine):  # type: ignore[misc, valid-type]
        def table(self, *given: Any) -> Table:
            made: Table = super().table(*given)
            costly(made)
            return made

    return Marked


def marked_queue(place: Place, engine: type[Engine], **options: Any) -> Queue:
    return place.open_with(marked(engine)).create_queue("work", payload="text", **options)


def name_of(queue: Queue) -> str:
    return context_of(queue).engine.words(context_of(queue).table)["queue"]


def lapse(connection: sa.Connection, queue: Queue) -> None:
    """Have all leases end an hour ago."""
    connection.exec_driver_sql(
        f"update {name_of(queue)} set lease_until = now() - interval '1 hour'"  # noqa: S608 (a checked name)
    )


def looked(queue: Queue) -> float | None:
    seconds: float | None = context_of(queue).run(context_of(queue).reads.until_next, {"now": None}).seconds
    return seconds


def ready_far_below(place: Place, queue: Queue) -> int:
    """Have another process release a message that is further below the mark than marked claims look."""
    queue.push_many(["a"] * (LATE_IDS + 50))
    theirs = claimed(place.open().queue("work"))
    while batch := queue.pop_many(150):
        queue.complete_many(batch)
    theirs.release()
    return theirs.id


@pytest.mark.parametrize("check", BELOW_THE_MARK.values(), ids=BELOW_THE_MARK)
def test_a_message_a_little_below_the_mark_is_found(place: Place, kind: Kind, check: Callable[..., None]) -> None:
    check(place, marked(kind.engine_class))


def test_a_message_far_below_the_mark_is_found_by_a_whole_claim(place: Place, kind: Kind) -> None:
    queue = marked_queue(place, kind.engine_class)
    id = ready_far_below(place, queue)
    assert queue.pop() is None, "it would walk too far"
    context_of(queue).table.walks.claims.next_whole = 0
    assert claimed(queue).id == id


class Once(Share):
    """Allows one statement to be whole."""

    def took(self, began: float, rows: int = 0, *, whole: bool, kind: object = None) -> None:
        self.next_whole = inf


@pytest.mark.parametrize("share", [Once, Share], ids=["costly", "cheap"])
def test_a_whole_look_that_finds_more_than_marks_show_makes_the_next_claim_whole(
    place: Place, kind: Kind, share: type[Share]
) -> None:
    queue = marked_queue(place, kind.engine_class)
    id = ready_far_below(place, queue)
    assert queue.pop() is None
    context_of(queue).table.walks.looks = share()
    assert looked(queue) == 0
    assert claimed(queue).id == id


def test_marks_do_not_outlive_the_ids_of_a_queue(place: Place, kind: Kind) -> None:
    """Somebody empties the table, and its ids begin again."""
    queue = marked_queue(place, kind.engine_class)
    queue.push_many(["a"] * 2 * LATE_IDS)
    while batch := queue.pop_many(LATE_IDS):
        queue.complete_many(batch)
    place.execute(f"truncate {place.table('work')} restart identity")
    id = place.open().queue("work").push("new")
    assert queue.pop() is None, "it begins far above"
    looked(queue)
    assert claimed(queue).id == id


def test_a_drain_looks_everywhere(place: Place, kind: Kind) -> None:
    queue = marked_queue(place, kind.engine_class)
    id = ready_far_below(place, queue)
    with waiter_of(queue) as waiter:
        assert queue.pop() is None
        assert waiter.looks_everywhere()
        assert claimed(queue).id == id
        assert not waiter.looks_everywhere(), "the last pop was whole"


def test_a_consumer_that_gets_nothing_knows_the_last_id(place: Place, kind: Kind) -> None:
    queue = marked_queue(place, kind.engine_class)
    other = place.open().queue("work")
    other.push_many(["a"] * 2 * LATE_IDS)
    while batch := other.pop_many(LATE_IDS):
        other.complete_many(batch)
    context = context_of(queue)
    assert context.run(context.reads.until_next, {"now": None}).seconds > 0, "until it may look everywhere"
    assert context.table.lowest >= LATE_IDS


def test_due_messages_and_ended_leases_are_found(place: Place, kind: Kind) -> None:
    queue = marked_queue(place, kind.engine_class)
    assert queue.pop() is None, "a first sweep, which looks everywhere"
    due, abandoned, taken = queue.push("due", delay=0.05), queue.push("lease"), queue.push("later")
    assert claimed(queue, lease=0.05).id == abandoned
    assert claimed(queue).id == taken
    assert {message.id for message in queue.consume(wait=1.5)} == {due, abandoned}


def check_a_full_sweep_is_not_the_last(place: Place, engine: type[Engine]) -> None:
    """What a sweep leaves is older than what the next one must look at."""
    queue = marked_queue(place, engine)
    queue.push_many(["a"] * (SWEPT + 1))
    for _ in range(7):
        queue.pop_many(150)
    with place.sa_engine().begin() as connection:
        lapse(connection, queue)
    context_of(queue).table.walks.swept_at = None  # as if it had not swept yet
    found = 0
    while batch := queue.pop_many(SWEPT):
        found += len(batch)
    assert found == SWEPT + 1


def test_a_full_sweep_is_not_the_last(place: Place, kind: Kind) -> None:
    check_a_full_sweep_is_not_the_last(place, kind.engine_class)


def test_a_lease_that_was_shortened_is_found_by_a_consumer_that_waits(place: Place, kind: Kind) -> None:
    """A look begins at the end that the lease had before."""
    queue = marked_queue(place, kind.engine_class)
    queue.push("a")
    theirs = claimed(place.open().queue("work"))
    assert queue.pop() is None
    assert (looked(queue) or 0) > 1
    theirs.extend(0.001)
    with waiter_of(queue, 0.01) as waiter:
        began = monotonic()
        waiter.wait(PATIENCE)
        assert monotonic() < began + PATIENCE, "it would look on until the end"
    assert claimed(queue).id == theirs.id


def check_a_sweep_may_pass_over_a_locked_message(place: Place, engine: type[Engine]) -> None:
    """A transaction completes it, stays open until the lease has long ended, and is rolled back."""
    queue = marked_queue(place, engine)
    queue.push("a")
    message = claimed(queue, lease=0.001)
    with place.sa_engine().connect() as connection:
        message.complete(connection=connection)
        assert queue.pop() is None
        connection.rollback()
    context_of(queue).table.walks.swept_at = monotonic() + 2 * LATE_SECONDS  # as if that had lasted longer
    assert (looked(queue) or 0) < 0
    assert claimed(queue).id == message.id


def test_a_sweep_may_pass_over_a_locked_message(place: Place, kind: Kind) -> None:
    check_a_sweep_may_pass_over_a_locked_message(place, kind.engine_class)


def test_a_sweep_that_the_server_made_late_does_not_count(
    place: Place, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked back from a later time than that from which its seconds were measured."""
    queue = marked_queue(place, kind.engine_class)
    assert queue.pop() is None
    swept_at = context_of(queue).table.walks.swept_at or inf
    monkeypatch.setattr(messages, "LATE_SECONDS", 0)
    assert queue.pop() is None
    assert context_of(queue).table.walks.swept_at == swept_at
    monkeypatch.undo()
    assert queue.pop() is None
    assert (context_of(queue).table.walks.swept_at or 0) > swept_at


def test_what_a_sweep_missed_is_found_by_a_whole_one(place: Place, kind: Kind) -> None:
    """As after a jump of the clock, or when the process that swept it died."""
    queue = marked_queue(place, kind.engine_class)
    queue.push("a")
    message = claimed(queue)
    assert queue.pop() is None
    with place.sa_engine().begin() as connection:
        lapse(connection, queue)
    assert queue.pop() is None
    context_of(queue).table.walks.sweeps.next_whole = 0
    assert claimed(queue).id == message.id


def test_only_what_costs_something_is_seldom_whole(kind: Kind) -> None:
    def took(share: Share, seconds: float, whole: bool = True, rows: int = 0) -> bool:
        share.took(monotonic() - seconds, rows, whole=whole)
        return share.allows

    share = Share()
    assert took(share, 0.1, whole=False), "a server far away"
    assert all(took(share, 0.1) for _ in range(5)), "a walk of nothing"
    assert [took(share, 0.3) for _ in range(3)] == [True, True, False], "one may have waited for a core"
    assert walks.PAUSES * 0.1 < share.next_whole - monotonic() <= walks.LONGEST_PAUSE
    assert took(share, 0.1), "the cheapest of the last three counts"
    far = Share()
    for seconds in (0.2, 0.23, 0.21, 0.25, 0.22):
        assert took(far, seconds, whole=False), "a server at times further away"
    assert all(took(far, 0.24) for _ in range(5)), "no dearer than the others"
    assert [took(far, 0.4) for _ in range(3)] == [True, True, False], "dearer than each of them"
    bulk = Share()
    assert took(bulk, 0.001, whole=False, rows=1)
    assert all(took(bulk, 0.02, rows=1000) for _ in range(3)), "the work on the messages is none of a walk"


@contextmanager
def held(place: Place, queue: Queue) -> Any:
    with place.sa_engine().connect().execution_options(isolation_level="REPEATABLE READ") as reader:
        reader.execute(sa.text(f"select count(*) from {name_of(queue)}"))  # noqa: S608 (a checked name)
        yield


def test_marks_spare_the_dead_entries(place: Place, kind: Kind) -> None:
    """The pages that a claim, a sweep and a look read while a snapshot is held: few of those of a whole one."""
    queue = marked_queue(place, kind.engine_class, lease=0.001)
    engine, table, number = context_of(queue).engine, context_of(queue).table, 3 * LATE_IDS
    queue.push_many(["a"] * number)
    with held(place, queue):
        claims = [claim for _ in range(number // 150) for claim in queue.pop_many(150, lease=0.001)]
        with place.sa_engine().begin() as connection:
            connection.exec_driver_sql(f"delete from {name_of(queue)}")  # noqa: S608 (a checked name)
            assert len(claims) >= number
            marks = {"low_water": str(number), "since_sweep": "0", "until_lease": "1"}
            whole = {"low_water": "0", "since_sweep": "null", "until_lease": "null"}
            common = {"now": "null", "n": "10", "max_attempts": "5", "consumer": "'a'", "lease": "60"}
            for operation in ("claim", "sweep", "until_next"):
                text = engine.render(operation, table)
                pages = [
                    _pages(connection, put(engine, text, {**common, "token": f"'{'0' * 32}'", **values}))
                    for values in (marks, whole)
                ]
                assert 3 * pages[0] < pages[1], (operation, pages)


def _pages(connection: sa.Connection, statement: str) -> int:
    (plan,) = connection.exec_driver_sql(f"explain (analyze, buffers, format json) {statement}").scalars()
    node = plan[0]["Plan"]
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


# -- mutants ------------------------------------------------------------------------------------------------------


def never_late(engine: type[Engine]) -> type[Engine]:
    """Looks at no id below the highest one that was claimed."""

    class NeverLate(Table):
        @property
        def lowest(self) -> int:
            return self.walks.highest

    return with_table(NeverLate)(engine)


def forgets_the_rest(engine: type[Engine]) -> type[Engine]:
    """Takes each sweep for one that left nothing."""

    class ForgetsTheRest(type(engine.messages)):  # type: ignore[misc]
        def sweep(self, cursor: Any, table: Table, params: Any) -> int:
            began = monotonic()
            moved: int = super().sweep(cursor, table, params)
            table.walks.swept_at = began
            return moved

    return type("ForgetsTheRest", (engine,), {"messages": ForgetsTheRest()})


def never_looks_back(engine: type[Engine]) -> type[Engine]:
    """Does not learn from a look what a sweep has passed over."""

    class NeverLooksBack(Walks):
        def passed_over(self, ended: float) -> None: ...

    class Made(Table):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.walks = NeverLooksBack()

    return with_table(Made)(engine)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (never_late, BELOW_THE_MARK["when nothing else is ready"]),
        (never_late, BELOW_THE_MARK["after a sweep"]),
        (forgets_the_rest, check_a_full_sweep_is_not_the_last),
        (never_looks_back, check_a_sweep_may_pass_over_a_locked_message),
    ],
)
def test_the_mutant_is_noticed(place: Place, kind: Kind, mutant: Any, check: Callable[..., None]) -> None:
    with pytest.raises(AssertionError):
        check(place, mutant(kind.engine_class))
