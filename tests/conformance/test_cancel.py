"""Cancels: what waits is gone, what is in progress is told to stop, and nothing of it is retried."""

from __future__ import annotations

from typing import Any

import pytest

from tablequeue import ALL, Cancellation, Cancelled, Database, Queue
from tablequeue.errors import BadInput, LeaseLost
from tablequeue.verbs import after, sweep
from tests.callers import Caller
from tests.servers import Place
from tests.support import at, claimed, counts, design_group, found, ids_of, refuses

pytestmark = [pytest.mark.quick, pytest.mark.designs("distinct"), pytest.mark.variants("procedures")]


def push(queue: Queue, payload: str = "m", **options: object) -> int:
    id: int = queue.push(payload, **design_group(queue, "g"), **options)  # type: ignore[call-overload]
    return id


def outcome(queue: Queue, id: int) -> tuple[str, list[str]]:
    """Return the state of a message, and its errors."""
    message = queue.find(id)
    assert message is not None
    return message.state, [error.error for error in message.errors]


def test_a_message_that_waits_is_gone(queue: Queue) -> None:
    first, later, behind = push(queue), push(queue, delay=60), push(queue)
    assert queue.cancel([first, later, behind], now=at(1)) == Cancellation(cancelled=(first, later, behind))
    assert queue.pop() is None
    assert counts(queue) == {"finished": 3}
    message = queue.find(first)
    assert message is not None
    assert (message.state, message.finished_at, message.popped_at) == ("cancelled", at(1), None)
    assert queue.cancel(first) == Cancellation(unknown=(first,))


def test_a_dead_letter_is_gone_with_its_errors(queue: Queue) -> None:
    id = push(queue)
    claimed(queue).fail("why", retry=False)
    assert queue.cancel(id).cancelled == (id,)
    assert queue.redrive(ALL) == 0
    assert outcome(queue, id) == ("cancelled", ["why"])


def test_the_account_has_each_id_once(queue: Queue) -> None:
    one, two = push(queue), push(queue)
    message = claimed(queue)
    assert message.id in (one, two)
    waits = two if message.id == one else one
    assert queue.cancel([two, one, two, 999]) == Cancellation((waits,), (message.id,), (999,))
    assert queue.cancel([]) == Cancellation()


def test_a_message_in_progress_is_told_and_may_complete(queue: Queue) -> None:
    id = push(queue)
    message = claimed(queue)
    assert not message.cancelled
    message.raise_if_cancelled()
    assert queue.cancel(id).in_progress == (id,)
    assert queue.cancel(id).in_progress == (id,), "it is told again"
    assert message.cancelled
    assert queue.is_cancelled(message)
    refuses(Cancelled, message.raise_if_cancelled)
    message.extend(60)
    message.complete()
    assert outcome(queue, id) == ("finished", [])
    assert message.cancelled, "once true, always true"


def test_cancelled_asks_the_database(queue: Queue, place: Place) -> None:
    id = push(queue)
    message = claimed(queue)
    place.open().queue(queue.name).cancel(id)
    assert message.cancelled


def test_a_told_message_that_fails_is_not_retried(queue: Queue) -> None:
    id = push(queue)
    message = claimed(queue, now=at(0))
    queue.cancel(id)
    assert message.fail("stopped", now=at(1)) == "cancelled"
    assert queue.pop(now=at(100)) is None
    assert outcome(queue, id) == ("cancelled", ["stopped"])
    history = queue.history()[0]
    assert (history.finished_at, history.attempts) == (at(1), 1)
    refuses(LeaseLost, message.fail, "again")


def test_a_told_message_that_is_released_is_not_retried(queue: Queue) -> None:
    id = push(queue)
    message = claimed(queue)
    queue.cancel(id)
    message.release()
    assert queue.pop() is None
    assert outcome(queue, id) == ("cancelled", [])
    refuses(LeaseLost, message.release)


@pytest.mark.needs("many_in_progress")
def test_a_batch_of_which_some_were_told_is_released(queue: Queue) -> None:
    ids = queue.push_many([*"abcd"])
    batch = queue.pop_many(4)
    queue.cancel(ids[1:3])
    queue.release_many(batch)
    assert counts(queue) == {"ready": 2, "finished": 2}
    assert {id for id in ids if outcome(queue, id)[0] == "cancelled"} == {*ids[1:3]}


def test_a_told_message_whose_lease_expires_is_not_retried(queue: Queue) -> None:
    id, late = push(queue), push(queue, delay=1, now=at(0))
    message = claimed(queue, lease=5, now=at(0))
    queue.cancel(id)
    later = claimed(queue, now=at(10))
    assert later.id == late, "its group goes on, and others' leases are as they were"
    assert outcome(queue, id) == ("cancelled", ["lease expired"])
    refuses(LeaseLost, message.complete)
    assert not later.cancelled


def test_without_a_history_they_are_deleted(db: Database, design: str, options: dict[str, object]) -> None:
    queue = db.create_queue("work", **options | {"history": "none"})  # type: ignore[arg-type]
    ids = [push(queue) for _ in range(4)]
    for end in ("fail", "release", "expire"):
        message = claimed(queue, lease=5, now=at(0))
        assert queue.cancel(message.id).in_progress == (message.id,)
        if end == "expire":
            queue.pop(now=at(10))
        else:
            getattr(message, end)(now=at(0))
        assert queue.find(message.id) is None
        ids.remove(message.id)
    assert queue.cancel(ids) in (Cancellation(cancelled=(*ids,)), Cancellation(in_progress=(*ids,)))


def test_the_key_is_free(queue: Queue) -> None:
    id = push(queue, key="k")
    queue.cancel(id)
    second = push(queue, key="k")
    message = claimed(queue)
    assert (message.id, message.key) == (second, "k")
    queue.cancel(second)
    refuses(BadInput, push, queue, key="k")
    message.fail("stopped")
    assert push(queue, key="k")


def test_a_predicate_chooses(queue: Queue) -> None:
    ids = [push(queue, payload) for payload in "abab"]
    message = claimed(queue, now=at(0))
    account = queue.cancel(lambda message: message.payload == "a")
    chosen = {ids[0], ids[2]}
    assert {*account.cancelled, *account.in_progress} == chosen
    assert account.in_progress == ((message.id,) if message.id in chosen else ())
    assert account.unknown == ()


def test_a_cancel_is_a_part_of_the_callers_transaction(queue: Queue, caller: Caller) -> None:
    id, other = push(queue), push(queue)
    message = claimed(queue)
    account = queue.cancel([id, other], connection=caller.connection)
    assert account.in_progress == (message.id,)
    caller.rollback()
    assert not message.cancelled
    message.complete()
    (waits,) = account.cancelled
    queue.cancel(waits, connection=caller.connection)
    caller.commit()
    assert queue.pop() is None
    assert outcome(queue, waits) == ("cancelled", [])


def test_a_group_goes_on(db: Database) -> None:
    queue = db.create_queue("work", groups=True)
    first, second, third = (queue.push(payload, group="g") for payload in "abc")
    assert queue.cancel(second).cancelled == (second,)
    assert queue.cancel(first).cancelled == (first,)
    message = claimed(queue)
    assert message.id == third
    fourth = queue.push("d", group="g")
    queue.cancel(third)
    message.fail("stopped")
    assert claimed(queue).id == fourth


def test_at_most_once_only_what_waits(db: Database) -> None:
    queue = db.create_queue("work", delivery="at_most_once")
    one, two = queue.push(1), queue.push(2)
    message = claimed(queue)
    assert queue.cancel([one, two]) == Cancellation(cancelled=(two,), unknown=(one,))
    assert not message.cancelled
    message.complete()
    assert ids_of(queue.history()) == [two, one]


def test_what_is_no_id_is_refused(queue: Queue) -> None:
    for wrong in ("1", [1, None], -1, True, 1.5, None):
        refuses(BadInput, queue.cancel, wrong)
    for which in (1, 1.5, "1", [None]):
        refuses(BadInput, queue.redrive, which)
        refuses(BadInput, queue.purge_dead, which)


def test_stats_leave_out_what_was_cancelled(queue: Queue) -> None:
    id = push(queue)
    queue.cancel(id, now=at(1))
    push(queue, now=at(0))
    claimed(queue, now=at(1)).complete(now=at(2))
    window = queue.stats(window=60, now=at(3)).window
    assert window is not None
    assert window.queue.finished == 1


def test_found_while_it_is_told(queue: Queue) -> None:
    id = push(queue)
    claimed(queue)
    queue.cancel(id)
    assert found(queue, id).state == "in_progress"


def test_a_release_promotes_only_when_a_message_ends(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    promotions: list[object] = []

    def promote(*args: Any) -> int:
        promotions.append(args)
        return sweep.promote(*args)

    monkeypatch.setattr(after, "promote", promote)
    queue = db.create_queue("work", groups=True)
    first, second = queue.push_many(["first", "second"], group="a")
    promotions.clear()
    claimed(queue).release()
    message = claimed(queue)
    assert message.id == first
    always = db.engine.dialect.name in ("mysql", "mariadb")
    assert not promotions or always
    queue.cancel(first)
    promotions.clear()
    message.release()
    assert claimed(queue).id == second
    assert len(promotions) <= 1 or always, "none after a procedure, which promotes by itself"
