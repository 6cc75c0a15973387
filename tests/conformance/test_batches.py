"""Batches: messages with one callback, which is pushed when all of them are finished."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import monotonic
from typing import Any

import pytest

import tablequeue.aio
from tablequeue import ALL, Database, NewMessage
from tablequeue.errors import BadDefinition, BadInput, BadPayload, BatchNotFound, DuplicateKey, LeaseLost, QueueNotFound
from tablequeue.ext import context_of
from tablequeue.verbs.batches import progress_of_open
from tests.async_support import PATIENCE, in_loop
from tests.batches import (
    ENGINES,
    FAILED,
    THEN,
    called,
    check_batch,
    check_dead,
    check_repair,
    check_results,
    check_seen,
    check_together,
    check_withdrawn,
    completed_without_a_look,
    made,
    numbers,
    opened,
    progress,
    swept,
)
from tests.crashes import Steps, open_stepping
from tests.servers import Kind, Place, only
from tests.support import DESIGNS, at, claimed, refuses

pytestmark = [pytest.mark.quick, only(*ENGINES)]

SOME = "fifo", "lifo", "due", "priority", "groups", "fair"


@pytest.mark.parametrize("history", ["keep", "none"])
@pytest.mark.parametrize("design", SOME)
def test_the_callback_is_pushed_once(db: Database, design: str, history: str) -> None:
    check_batch(db, history=history, **DESIGNS[design])


def test_messages_that_leave_without_being_completed(db: Database) -> None:
    check_withdrawn(db)


def test_a_dead_letter(db: Database) -> None:
    check_dead(db)


def test_a_sweep_repairs(db: Database) -> None:
    check_repair(db)


def test_the_results_of_a_batch(db: Database) -> None:
    check_results(db)


def test_a_queue_without_results_has_none_of_a_batch(db: Database) -> None:
    refuses(BadInput, db.batch(opened(made(db))).results)


def test_open_batches_are_seen(db: Database) -> None:
    check_seen(db)


def test_open_batches_cost_one_statement_for_each_queue(db: Database, place: Place) -> None:
    """However many there are; and a queue without batches is asked nothing about them."""
    for _ in range(5):
        opened(made(db))
    steps = Steps(lambda number, words: None)
    stepping = open_stepping(place, steps)

    def statements(act: Callable[[], object]) -> int:
        act()  # opens a connection
        steps.count, steps.armed = 0, True
        act()
        steps.armed = False
        return steps.count

    work, plain = stepping.queue("work"), stepping.queue("called")
    assert statements(lambda: progress_of_open(context_of(work), 100, 0)) == 1
    assert statements(work.stats) == statements(plain.stats) + 1


def test_without_the_block_nothing_is_pushed(db: Database) -> None:
    queue = made(db)
    with pytest.raises(ZeroDivisionError), queue.batch(then=THEN) as batch:
        batch.push(str(1 / (queue.push("another") * 0)))
    refuses(BadInput, lambda: batch.id)
    with pytest.raises(BadPayload), queue.batch(then=THEN) as batch:
        batch.push_many(["a", 1])
    queue.push("there", key="k")
    with pytest.raises(DuplicateKey), queue.batch(then=THEN) as batch:
        batch.push_many(["a", NewMessage("b", key="k")])
    assert [message.payload for message in queue.peek(10)] == ["another", "there"]
    refuses(BatchNotFound, db.batch, 1)
    assert called(db) == []


def test_every_way_to_push(db: Database) -> None:
    """Payloads, messages with options, many at once: all are in the batch, and no other message is."""
    queue = made(db, order="priority")
    queue.push("another")
    with queue.batch(then=THEN) as batch:
        batch.push("a")
        batch.push_many([*"bc"])
        batch.push_many([])
        batch.push(NewMessage("d", priority=9, key="k"))
        batch.push_many(["e", NewMessage("f", delay=60)])
        batch.push_many(f"{n:0100}" for n in range(1200))
    queue.push_many([*"xy"])
    assert progress(db, batch.id) == {"waiting": 1206}
    assert claimed(queue).payload == "d"
    assert progress(db, batch.id) == {"waiting": 1205, "in_progress": 1}
    assert queue.purge() == 1208
    assert progress(db, batch.id) == {"in_progress": 1, "cancelled": 1205}


def test_an_empty_batch_ends_at_once(db: Database) -> None:
    queue = made(db)
    id = opened(queue, "")
    assert called(db) == [("ended", id, {})]
    without = opened(queue, "", then=None)
    assert db.batch(without).progress().ended_at is not None
    assert len(called(db)) == 1


def test_completions_of_many_batches_at_once(db: Database) -> None:
    queue = made(db)
    ids = [opened(queue, "ab") for _ in range(3)]
    queue.push("z")
    queue.complete_many(queue.pop_many(7))
    assert sorted(id for _, id, _ in called(db)) == ids


def test_a_large_claim_of_a_batch(db: Database) -> None:
    queue = made(db)
    with queue.batch(then=THEN) as batch:
        batch.push_many(f"{n}" for n in range(250))
    messages = queue.pop_many(250)
    assert progress(db, batch.id) == {"in_progress": 250}
    queue.complete_many(messages)
    assert called(db) == [("ended", batch.id, {"total": 250, "finished": 250})]


def test_a_pop_that_completes(db: Database) -> None:
    queue = made(db)
    id = opened(queue)
    message = queue.pop()
    while message is not None:
        assert called(db) == []
        message = queue.pop(completing=message)
    assert called(db) == [("ended", id, {"total": 3, "finished": 3})]


@pytest.mark.parametrize(
    "options", [{"history": "none"}, {"groups": "fair"}, {"order": "lifo"}, {"concurrency": 2}], ids=str
)
def test_a_pop_that_completes_the_last_message(db: Database, options: Any) -> None:
    check_together(db, **options)


@pytest.mark.parametrize("on_dead", ["continue", "cancel"])
def test_a_batch_that_does_not_wait_for_its_dead(db: Database, on_dead: Any) -> None:
    queue = made(db)
    id = opened(queue, "abcd", failed=FAILED, on_dead=on_dead)
    first, second = queue.pop_many(2)
    first.fail("no")
    waiting, gone = (2, {}) if on_dead == "continue" else (0, {"cancelled": 2})
    assert progress(db, id) == ({"waiting": waiting} if waiting else {}) | {"in_progress": 1, "dead": 1} | gone
    assert second.cancelled is (on_dead == "cancel")
    queue.complete_many(queue.pop_many(2))
    assert len(called(db)) == 1
    if on_dead == "cancel":
        assert second.fail("stopped") == "cancelled"
        assert called(db)[1:] == [("ended", id, {"total": 4, "dead": 1, "cancelled": 3})]
    else:
        second.complete()
        assert called(db)[1:] == [("ended", id, {"total": 4, "finished": 3, "dead": 1})]
    ended = db.batch(id).progress()
    assert queue.redrive(ALL) == 1
    message = claimed(queue)
    with pytest.raises(BadInput), queue.batch_of(message) as batch:
        batch.push("x")
    message.complete()
    assert swept(queue) is None
    assert len(called(db)) == 2, "it opens nothing again"
    assert db.batch(id).progress() == ended


def test_a_lease_that_ends_is_a_dead_letter_of_the_batch(db: Database) -> None:
    queue = made(db)
    id = opened(queue, "a", failed=FAILED, on_dead="continue", now=at(0))
    claimed(queue, lease=10, now=at(1))
    assert queue.pop(now=at(12)) is None
    assert [payload for payload, *_ in called(db)] == ["failed", "ended"]
    assert progress(db, id) == {"dead": 1}


def test_purged_and_expired_messages(db: Database) -> None:
    queue = made(db, expires=60)
    id = opened(queue, "ab", now=at(0))
    claimed(queue, now=at(1)).fail("no", now=at(1))
    assert queue.pop(now=at(61)) is None
    assert progress(db, id) == {"dead": 1, "cancelled": 1}
    assert queue.purge_dead(ALL) == 1
    assert called(db) == [("ended", id, {"total": 2, "cancelled": 2})]


def test_cancel_a_batch(db: Database) -> None:
    queue = made(db)
    queue.push("another")
    id = opened(queue, "abc")
    batch = db.batch(id)
    assert (batch.id, batch.queue) == (id, "work")
    _, first, second = queue.pop_many(3)
    first.fail("no")
    assert batch.cancel() == 3
    assert numbers(batch.progress()) == {"in_progress": 1, "cancelled": 2}
    assert second.cancelled
    assert called(db) == []
    assert second.fail("stopped") == "cancelled"
    assert called(db) == [("ended", id, {"total": 3, "cancelled": 3})]
    assert batch.cancel() == 0
    assert queue.stats().in_progress == 1, "the message of no batch"


def test_a_handler_adds_messages(db: Database) -> None:
    queue = made(db)
    id = opened(queue, "a")
    message = claimed(queue)
    with queue.batch_of(message) as batch:
        batch.push_many([*"bc"])
    assert batch.id == id
    message.complete()
    assert called(db) == []
    assert progress(db, id) == {"waiting": 2, "finished": 1}
    with pytest.raises(LeaseLost), queue.batch_of(message) as batch:
        batch.push("late")
    queue.complete_many(queue.pop_many(2))
    assert called(db) == [("ended", id, {"total": 3, "finished": 3})]
    queue.push("alone")
    with pytest.raises(BadInput), queue.batch_of(claimed(queue)) as batch:
        batch.push("x")


def test_a_message_is_not_finished_while_its_handler_adds(db: Database, place: Place, kind: Kind) -> None:
    """A completion waits for the transaction that adds to the batch, and the batch stays open."""
    queue = made(db)
    id = opened(queue, "a")
    message = claimed(queue)
    with place.sa_engine().connect() as connection, ThreadPoolExecutor(1) as threads:
        with queue.batch_of(message, connection=connection) as batch:
            batch.push("b")
        completion = threads.submit(place.open().queue("work").complete, message)
        connection.commit()
        completion.result()
    assert called(db) == []
    assert progress(db, id) == {"waiting": 1, "finished": 1}


def test_the_last_two_at_once(db: Database, place: Place) -> None:
    """Completions at the same moment: each batch has one callback."""
    queue = made(db)
    rounds = 8
    barrier = Barrier(2)
    ids = [opened(queue, "ab") for _ in range(rounds)]
    held = [queue.pop_many(2) for _ in range(rounds)]

    def complete(number: int) -> None:
        own = place.open().queue("work")
        for claims in held:
            barrier.wait(60)
            own.complete(claims[number])

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(complete, range(2)))
    assert swept(queue) is None
    assert sorted(id for _, id, _ in called(db)) == ids


def test_completions_in_a_transaction_of_the_callers(db: Database, place: Place) -> None:
    """Nothing is seen of them before the commit; the next sweep ends the batch."""
    queue = made(db)
    id = opened(queue, "ab")
    first = claimed(queue)
    with place.sa_engine().connect() as connection:
        second = claimed(queue, connection=connection)
        queue.complete(second, connection=connection)
        queue.complete(first, connection=connection)
        connection.rollback()
        assert progress(db, id) == {"waiting": 1, "in_progress": 1}
        queue.complete_many([first, claimed(queue)], connection=connection)
        connection.commit()
    assert swept(queue) is None
    assert called(db) == [("ended", id, {"total": 2, "finished": 2})]


def test_a_completion_waits_for_no_message_of_its_batch(db: Database, place: Place, kind: Kind) -> None:
    """Nor does it keep another message of the batch from consumers until it commits."""
    if not kind.side_by_side:
        pytest.skip("One transaction writes at a time.")
    queue = made(db)
    id = opened(queue, "abc")
    first = claimed(queue)
    with place.sa_engine().connect() as one, place.sa_engine().connect() as two:
        second = claimed(queue, connection=one)
        third = claimed(queue, connection=one)
        first.complete()
        queue.complete(second, connection=one)
        one.rollback()
        second = claimed(queue)
        queue.complete(second, connection=one)
        assert claimed(queue, connection=two).id == third.id
        two.rollback()
        one.commit()
    assert progress(db, id) == {"waiting": 1, "finished": 2}


def test_a_consumer_that_waits_repairs(db: Database, place: Place) -> None:
    """No push wakes it, and nothing is due; it looks at batches all the same."""
    queue = made(db)
    opened(queue, "a")
    message = claimed(queue)
    other = place.open().queue("work")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(lambda: next(iter(other.consume(wait=PATIENCE))))
        completed_without_a_look(queue, message)
        deadline = monotonic() + PATIENCE
        while not called(db):
            assert monotonic() < deadline, "nobody looks"
        queue.push("end")
        assert waiting.result().payload == "end"


def test_a_database_without_batches(db: Database) -> None:
    refuses(BatchNotFound, db.batch, 1)


def test_doctor_finds_nothing_about_batches(db: Database) -> None:
    queue = made(db)
    assert not [finding for finding in db.doctor(queue.name) if "index" in finding.cause]


@pytest.mark.parametrize("payloads", ["", "ab"])
def test_a_batch_in_a_transaction_of_the_callers(db: Database, place: Place, payloads: str) -> None:
    queue = made(db)
    with place.sa_engine().connect() as connection:
        rolled_back = opened(queue, payloads, connection=connection)
        connection.rollback()
        refuses(BatchNotFound, db.batch, rolled_back)
        id = opened(queue, payloads, connection=connection)
        connection.commit()
    assert [one for _, one, _ in called(db)] == ([] if payloads else [id])
    queue.complete_many(queue.pop_many(2))
    assert [one for _, one, _ in called(db)] == [id]


def test_the_queue_of_a_callback(db: Database) -> None:
    """It may be renamed, or be strict, or hold bytes; if it is dropped, the batch stays open."""
    queue = made(db)
    db.create_queue("strict", strict=True)
    db.create_queue("bytes", payload="bytes")
    db.create_queue("due", order="due")
    for name in ("strict", "bytes", "due"):
        payload = b"\x00\xff" if name == "bytes" else {"x": "ü"}
        opened(queue, "a", then=(name, payload))
        db.rename(name, f"{name} renamed")
        claimed(queue).complete()
        assert claimed(db.queue(f"{name} renamed")).payload == payload
    other = db.create_queue("other")
    id = opened(queue, "a", then=("other", 1))
    other.drop()
    claimed(queue).complete()
    assert swept(queue) is None
    assert db.batch(id).progress().ended_at is None
    assert progress(db, id) == {"finished": 1}


def test_what_is_refused(db: Database) -> None:
    queue = made(db)
    db.create_queue("groups", groups=True)
    topic = db.create_topic("events")
    plain = db.create_queue("plain", payload="text")
    for then in (("groups", 1), (topic.name, 1), "called", ("called",), ("called", 1), 1):
        with pytest.raises((BadInput, QueueNotFound)), queue.batch(then=then):  # type: ignore[arg-type]
            pass
    with pytest.raises(QueueNotFound), queue.batch(failed=("nowhere", 1)):
        pass
    with pytest.raises(BadInput), queue.batch(on_dead="explode"):  # type: ignore[arg-type]
        pass
    with pytest.raises(BadInput), plain.batch():
        pass
    for options in ({"delivery": "at_most_once"}, {"dead_letter_to": "called"}, {"batches": 1}):
        refuses(BadDefinition, db.create_queue, "x", **{"batches": True, **options})
    refuses(BadInput, queue.move, ALL, to=plain)
    for id in (0, 99, "a"):
        assert "batch" in refuses((BatchNotFound, BadInput), db.batch, id).cause  # type: ignore[arg-type]
    with db.engine.connect() as connection:
        refuses(BadInput, queue.take, connection)


def test_a_dropped_queue_takes_its_batches_with_it(db: Database) -> None:
    queue = made(db)
    id = opened(queue)
    other = db.create_queue("other", payload="text", batches=True)
    kept = opened(other)
    assert kept != id
    queue.drop()
    refuses(BatchNotFound, db.batch, id)
    assert progress(db, kept) == {"waiting": 3}


def test_a_renamed_queue(db: Database) -> None:
    queue = made(db)
    id = opened(queue, "a")
    db.rename("work", "other")
    assert db.batch(id).queue == "other"
    claimed(queue).complete()
    assert len(called(db)) == 1


def test_open_batches_are_looked_at_in_turn(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep looks at some of many open batches, and the next one at those after them."""
    monkeypatch.setattr("tablequeue.verbs.batch_ends.BATCHES", 2)
    queue = made(db)
    for _ in range(5):
        opened(queue, "a")
    completed_without_a_look(queue, queue.pop_many(5)[4])
    for _ in range(3):
        assert swept(queue) is None
    assert len(called(db)) == 1


@in_loop
async def test_the_async_verbs(place: Place) -> None:
    async with await tablequeue.aio.connect(place.url, schema=place.schema) as db:
        await db.create_queue("called", payload="text")
        queue = await db.create_queue("work", payload="text", batches=True, results=True)
        with pytest.raises(BadPayload):
            async with queue.batch(then=THEN) as batch:
                batch.push_many(["a", 1])
        async with queue.batch(then=THEN) as batch:
            batch.push_many([*"ab"])
        message = await queue.pop()
        assert message is not None
        async with queue.batch_of(message) as more:
            more.push("c")
        found = await db.batch(batch.id)
        assert (found.id, found.queue) == (more.id, "work")
        assert numbers(await found.progress()) == {"waiting": 2, "in_progress": 1}
        await message.complete(result="done")
        assert await found.results() == {message.id: "done"}
        assert await found.cancel() == 2
        assert numbers(await found.progress()) == {"finished": 1, "cancelled": 2}
        assert [message.payload for message in await (await db.queue("called")).peek(9)] == ["ended"]
