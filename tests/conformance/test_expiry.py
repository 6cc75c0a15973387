"""Messages that expire: their time is over while they wait, and no consumer gets them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tablequeue import ALL, Database, NewMessage, Queue
from tablequeue.bulk import staging
from tablequeue.bulk.stream import Stream
from tablequeue.errors import BadDefinition, BadInput
from tablequeue.ext import context_of
from tablequeue.verbs.claim import leased
from tests.checks import check_expiry
from tests.support import at, claimed, counts, design_group, found, ids_of, refuses

pytestmark = pytest.mark.quick


@pytest.fixture
def waiting(db: Database) -> Queue:
    """A queue whose messages expire after a minute."""
    return db.create_queue("waiting", expires=60)


def test_no_consumer_gets_a_message_whose_time_is_over(db: Database, options: dict[str, Any]) -> None:
    check_expiry(db.create_queue("work", **options, expires=60))


def test_without_a_history_it_is_a_dead_letter(db: Database, options: dict[str, Any]) -> None:
    queue = db.create_queue("work", **options, expires=60, history="none")
    group = design_group(queue, "a")
    ids = queue.push_many([*"ab"], **group, now=at(0))
    assert queue.pop(now=at(60)) is None
    assert [(message.id, message.errors[-1].error) for message in queue.dead()] == [(id, "expired") for id in ids]
    assert queue.redrive(ALL, now=at(70)) == 2
    assert claimed(queue, now=at(1000)).id in ids, "a redriven message expires no more"


def test_each_message_may_have_its_own_time(waiting: Queue) -> None:
    usual = waiting.push(1, now=at(0))
    long = waiting.push(2, expires=timedelta(hours=1), now=at(0))
    few = waiting.push_many([3, NewMessage(4, expires=90), NewMessage(5)], expires=30, now=at(0))
    many = waiting.push_many([str(number) for number in range(1500)], expires=120, now=at(0))
    assert ids_of(waiting.pop_many(2000, now=at(59))) == [usual, long, few[1], *many]
    waiting.purge_history(0, now=at(10_000))
    assert waiting.stats().expired == 0


def test_writes_of_many_processes_use_the_time_of_the_queue(waiting: Queue) -> None:
    staging.prepare(waiting)
    for keys in ([None, None], ["a", "b"]):
        batch = pa.RecordBatch.from_pydict({"payload": ["1", "2"], "key": pa.array(keys, pa.string())})
        columns = batch if keys[0] else batch.select(["payload"])
        staged = staging.stage(waiting, "0" * 32, "1" * 32, 0, [columns])
        assert staging.publish(waiting, "0" * 32, [staged]) == 2
    assert len(waiting.pop_many(10)) == 4
    waiting.push(3)
    assert waiting.pop(now=at(0)) is None, "the clock of the tests is years ahead"


def test_one_in_progress_may_be_completed_and_not_tried_again(waiting: Queue) -> None:
    done, failed, abandoned = waiting.push_many([1, 2, 3], now=at(0))
    first, second, _ = waiting.pop_many(3, lease=100, now=at(59))
    first.complete(now=at(90))
    second.fail("no", retry_in=0, now=at(90))
    assert waiting.pop(now=at(90)) is None
    assert waiting.pop(now=at(1000)) is None
    states = {message.id: (message.state, len(message.errors)) for message in waiting.history()}
    assert states == {done: ("finished", 0), failed: ("expired", 1), abandoned: ("expired", 1)}


def test_a_last_failure_after_that_time_expires_it_too(db: Database) -> None:
    queue = db.create_queue("once", expires=60, max_attempts=1)
    queue.push_many([1, 2], now=at(0))
    late, _ = queue.pop_many(2, lease=100, now=at(59))
    late.fail("no", now=at(60))
    assert queue.pop(now=at(200)) is None
    assert [message.state for message in queue.history()] == ["expired", "expired"]


@pytest.mark.parametrize("retry_in", [None, 0, 5])
def test_a_late_last_failure_is_tried_again_if_messages_do_not_expire_any_more(
    db: Database, retry_in: float | None
) -> None:
    queue = db.create_queue("once", expires=60, max_attempts=1)
    queue.push(1, now=at(0))
    claimed(queue, lease=100, now=at(59)).fail("no", retry_in=retry_in, now=at(61))
    queue.alter(expires=None)
    assert claimed(queue, now=at(80)).payload == 1


def test_without_a_history_it_moves_to_the_queue_for_dead_letters(db: Database) -> None:
    failed = db.create_queue("failed")
    queue = db.create_queue("work", expires=60, history="none", dead_letter_to="failed")
    ids = queue.push_many([*"ab"], now=at(0))
    assert queue.pop(now=at(60)) is None
    letters = [(message.headers["tablequeue-origin"]["id"], message.errors[-1].error) for message in failed.peek()]
    assert (letters, counts(queue)) == ([(id, "expired") for id in ids], {})
    assert queue.redrive(ALL) == 2
    assert len(queue.pop_many(2, now=at(1000))) == 2


def test_an_expired_head_does_not_hold_up_its_group(db: Database) -> None:
    queue = db.create_queue("groups", groups=True, expires=60)
    queue.push(1, group="a", now=at(0))
    later = queue.push(2, group="a", now=at(30))
    assert claimed(queue, now=at(60)).id == later


def test_a_message_that_is_due_comes_at_once_after_an_expired_head(db: Database) -> None:
    queue = db.create_queue("work", groups=True, expires=60)
    queue.push("head", group="a", now=at(0))
    queue.push("next", group="a", delay=1, now=at(59))
    assert claimed(queue, now=at(60)).payload == "next"


def test_a_claim_passes_over_what_no_sweep_has_moved_yet(waiting: Queue) -> None:
    waiting.push(1, now=at(0))
    later = waiting.push(2, now=at(30))
    context = context_of(waiting)
    _, params = leased(context, 10, 60, at(60))
    assert [row[0] for row in context.run(context.messages.claim, params)] == [later]


def test_take_and_streams_pass_over_it(waiting: Queue, db: Database) -> None:
    waiting.push(1, now=at(0))
    second, third = waiting.push_many([2, 3], now=at(30))
    with db.engine.begin() as connection:
        taken = waiting.take(connection, now=at(60))
        assert taken is not None
        assert taken.id == second
    stream = Stream(waiting, "s")
    batch = stream.advance(stream.found.batch, 10, now=at(60))
    assert stream.batch(batch)[1] == [third]


def test_stats_count_the_expired_and_leave_them_out_of_the_window(waiting: Queue) -> None:
    waiting.push_many([1, 2], now=at(0))
    waiting.push(3, now=at(10))
    assert claimed(waiting, now=at(60)).payload == 3
    stats = waiting.stats(window=3600, now=at(60))
    assert (stats.finished, stats.expired) == (2, 2)
    assert stats.window is not None
    assert stats.window.queue.finished == 0
    assert [message.state for message in waiting.history()] == ["expired", "expired"]
    assert found(waiting, 3).state == "in_progress"


def test_an_expiry_that_a_queue_lacks_is_refused(db: Database) -> None:
    plain = db.create_queue("plain")
    assert "do not expire" in refuses(BadInput, plain.push, 1, expires=60).cause
    assert "do not expire" in refuses(BadInput, plain.push_many, [NewMessage(1, expires=60)]).cause
    waiting = db.create_queue("waiting", expires=60)
    for wrong in (0, -1, "1"):
        refuses(BadInput, waiting.push, 1, expires=wrong)
        refuses(BadDefinition, db.create_queue, "wrong", expires=wrong)
    with pytest.raises(BadInput):
        db.create_topic("events", expires=60)  # type: ignore[call-arg]


def test_procedures_are_made_for_such_a_queue(db: Database, options: dict[str, Any]) -> None:
    queue = db.create_queue("work", **options, expires=60, unique_for=60, results=True)
    if context_of(queue).engine.procedure_syntax is None:
        pytest.skip("the database has no procedures")
    assert db.install_procedures("work")
