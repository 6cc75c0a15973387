"""`alter` gives a queue that is in use the tables of batches and of dependencies."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Database, Queue
from tablequeue.errors import BadDefinition, BadInput, Locked, QueueDiffers
from tests.batches import called, opened, progress
from tests.crashes import Steps, open_stepping, standing_at
from tests.crowd import PATIENCE, answer, started
from tests.dependencies import payloads, rows
from tests.servers import Kind, Place, only
from tests.support import claimed, counts, looked, refuses, rewritten

ENGINES = ("sqlite", "postgresql", "mariadb", "mssql")
on_engines = only(*ENGINES)
TRIGGER = re.compile(r"(?ms)^(delimiter|create (function|trigger)).*")
ON: dict[str, Any] = {"batches": True, "dependencies": True}


def check_switched_on(place: Place, database: Database) -> None:
    """Messages pushed before, and handles that do not know of it yet, go on; and batches and dependencies work."""
    database.create_queue("called", payload="text")
    queue = database.create_queue("work", payload="text", max_attempts=1, results=True)
    late = looked(place.open("late").queue("work"))
    late.push("before")
    held = claimed(late)
    queue.alter(**ON)
    assert late.push_many(["by the late one", "too"])
    held.complete(result=1)
    assert [late.pop(), late.pop()].count(None) == 0
    id = opened(queue, "abc")
    first, second, third = (message.id for message in queue.peek(3, state="ready"))
    last = queue.push("last", after=[third])
    assert late.cancel(first).cancelled == (first,)
    one, other = claimed(late), claimed(late)
    assert (one.id, other.id, queue.result(held.id)) == (second, third, 1)
    assert late.pop() is None
    one.complete(result=2)
    assert progress(database, id) == {"in_progress": 1, "cancelled": 1, "finished": 1}
    other.complete()
    assert [message.id for message in queue.pop_many(5)] == [last], "whoever knows sweeps"
    assert called(database) == [("ended", id, {"total": 3, "finished": 2, "cancelled": 1})]
    late.drop()
    again = database.create_queue("work", payload="text", **ON)
    assert list(again.batches()) == rows(again) == []


@on_engines
def test_they_are_switched_on(place: Place, db: Database) -> None:
    check_switched_on(place, db)


@only("sqlite", "postgresql", "mariadb")
def test_a_mutant_without_the_trigger_is_noticed(place: Place, kind: Kind) -> None:
    without = rewritten(kind.engine_class, create_batches=lambda text: re.sub(TRIGGER, "", text))
    with pytest.raises(AssertionError):
        check_switched_on(place, place.open_with(without))


@on_engines
def test_under_load(place: Place, db: Database) -> None:
    db.create_queue("called", payload="text")
    queue = db.create_queue("work", payload="text", groups=True)
    ended, pushed, seen = Event(), Counter[str](), Counter[str]()

    def produce(name: str) -> None:
        own = place.open(name).queue("work")
        for n in range(10_000):
            if ended.is_set():
                return
            own.push(f"{name}{n}", group=name)
            pushed[f"{name}{n}"] += 1

    def consume(name: str) -> None:
        own = place.open(name).queue("work")
        while not ended.is_set() or own.peek():
            for message in own.pop_many(5):
                seen[message.payload] += 1
                message.complete()

    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(produce, name) for name in "pq"] + [threads.submit(consume, name) for name in "cd"]
        try:
            queue.alter(**ON)
            id = opened(queue, "xyz")
            first = queue.push("first", group="r")
            queue.push("second", group="s", after=[first])
            while not called(db) or not seen["second"]:
                assert not any(future.done() for future in futures), "nobody meets an error"
        finally:
            ended.set()
        for future in futures:
            future.result(PATIENCE)
    assert called(db) == [("ended", id, {"total": 3, "finished": 3})]
    assert seen == pushed + Counter(["x", "y", "z", "first", "second"])


@only("mariadb")
def test_killed_between_two_statements_that_commit_it_can_be_done_again(place: Place, db: Database) -> None:
    check_killed(place, db, 3)


@on_engines
@pytest.mark.nightly
def test_killed_at_any_step_it_can_be_done_again(place: Place, db: Database) -> None:
    check_killed(place, db, 100)


def check_killed(place: Place, db: Database, points: int) -> None:
    """Until it is done again, the queue is as before, for everyone."""
    db.create_queue("called", payload="text")
    words: list[str] = []
    steps = Steps(lambda number, said: words.append(said))
    db.create_queue("work", payload="text", results=True)
    _alter(open_stepping(place, steps), steps)
    chosen = sorted({1 + n * (len(words) - 1) // points for n in range(1, points + 1)})
    for number in chosen:
        db.queue("work").drop()
        queue = db.create_queue("work", payload="text", results=True)
        late = looked(place.open("late").queue("work"))
        late.push("before")
        with started(1, stop_in_alter, lambda _: (place, number)) as (pipe,):  # noqa: B023
            assert answer(pipe) == words[number - 1]
        late.push("after")
        for message in late.pop_many(5):
            message.complete(result=1)
        queue.alter(**ON)
        id = opened(queue, "ab")
        assert payloads(queue) == ["a", "b"]
        assert progress(db, id) == {"finished": 2}
        assert counts(queue)["finished"] == 4
    assert len(called(db)) == len(chosen)


def _alter(database: Database, steps: Steps) -> None:
    queue = database.queue("work")
    steps.armed = True
    queue.alter(**ON)
    steps.step("returned")


def stop_in_alter(place: Place, number: int, pipe: Connection) -> None:
    """Alter the queue up to this step, report it, and stay there until killed."""
    steps = Steps(standing_at(number, pipe))
    _alter(open_stepping(place, steps), steps)


@only("postgresql", "mariadb")
def test_it_gives_up_soon_behind_an_open_transaction(place: Place, db: Database) -> None:
    """All who come later wait behind it; so it is short. After that it can be done again."""
    queue = db.create_queue("work", payload="text")
    with place.sa_engine().begin() as connection:
        queue.push("a", connection=connection)
        refuses(Locked, queue.alter, **ON)
        assert queue.push("b")
        assert not db.queue("work").definition.batches
    queue.alter(**ON)
    assert opened(db.queue("work"), "c", then=None)
    assert payloads(queue) == ["a", "b", "c"]


@only("postgresql", "mariadb")
def test_another_queue_waits_for_nobody_who_uses_them(place: Place, db: Database) -> None:
    """The shared tables are there already: nothing locks them, however long a transaction has written into them."""
    busy = db.create_queue("busy", payload="text", **ON)
    quiet = db.create_queue("quiet", payload="text")
    first = busy.push("a")
    with place.sa_engine().begin() as connection:
        with busy.batch(connection=connection) as batch:
            batch.push("b")
        busy.push("c", after=[first], connection=connection)
        quiet.alter(**ON)
        db.create_queue("another", **ON)
    assert batch.id


@only("postgresql", "mariadb", "mssql")
@pytest.mark.parametrize("feature", ON)
def test_a_queue_with_procedures_does_not_get_them(place: Place, db: Database, feature: str) -> None:
    """Other languages would complete without ending a batch. The refusal has changed nothing."""
    queue = db.create_queue("work", payload="text")
    db.install_procedures("work")
    before = _procedures(place)
    refuses(BadInput, queue.alter, **{feature: True})
    assert place.open("later").queue("work").definition == queue.definition
    assert _procedures(place) == before
    queue.alter(lease=9)


def _procedures(place: Place) -> list[str]:
    with place.sa_engine().connect() as connection:
        found = connection.execute(
            sa.text("select routine_name from information_schema.routines where routine_schema = :schema"),
            {"schema": place.schema},
        )
        return sorted(name for (name,) in found)


@on_engines
def test_they_stay_on(db: Database) -> None:
    queue = db.create_queue("work", **ON)
    for option in ON:
        error = refuses(BadDefinition, queue.alter, **{option: False})
        assert option in error.cause
        assert "move" in error.remedy
    assert "alter" not in refuses(QueueDiffers, db.create_queue, "work").remedy
    assert db.queue("work").definition == queue.definition


@on_engines
def test_the_remedy_is_alter(db: Database) -> None:
    queue: Queue = db.create_queue("work")
    for option, call in {
        "batches": lambda: queue.batch().__enter__(),
        "dependencies": lambda: queue.push("x", after=[1]),
    }.items():
        assert f"alter({option}=True)" in refuses(BadInput, call).remedy


@on_engines
def test_what_does_not_go_with_them_is_refused(db: Database) -> None:
    once = db.create_queue("once", delivery="at_most_once")
    refuses(BadDefinition, once.alter, batches=True)
    letters = db.create_queue("letters", dead_letter_to="once")
    refuses(BadDefinition, letters.alter, batches=True)
    assert not db.queue("letters").definition.batches
