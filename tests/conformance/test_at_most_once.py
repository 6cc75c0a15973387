"""Delivery at most once: the claim removes the message, and a message that was not completed is lost."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from tablequeue import Claim, Consumer, Database, LeaseLost, Queue
from tablequeue.errors import BadDefinition, BadInput
from tests.callers import Caller
from tests.checks import check_at_most_once
from tests.crowd import processes
from tests.servers import Place
from tests.support import at, claimed, counts, ids_of, refuses, snapshot

pytestmark = [pytest.mark.quick, pytest.mark.designs("claims"), pytest.mark.variants("procedures")]

# strict and groups cannot be combined with it: see test_what_does_not_go_together.
every_order = pytest.mark.needs("many_in_progress")


@pytest.fixture
def design() -> str:
    """What happens after the claim does not depend on the order."""
    return "fifo"


@pytest.fixture
def options(options: dict[str, Any]) -> dict[str, Any]:
    return options | {"delivery": "at_most_once", "lease": 30}


@every_order
def test_it_is_never_delivered_again(queue: Queue) -> None:
    check_at_most_once(queue)


@every_order
def test_a_pop_removes(queue: Queue, place: Place) -> None:
    id = queue.push("x", headers={"a": 1}, now=at(0))
    claim = claimed(place.open("bob").queue("work"), now=at(5))
    assert (claim.id, claim.payload, claim.headers, claim.attempt, claim.lease_until) == (id, "x", {"a": 1}, 1, None)
    assert counts(queue) == {}
    (message,) = queue.history()
    assert queue.find(id) == message
    assert (message.state, message.attempts, message.consumer) == ("in_progress", 1, "bob")
    assert (message.pushed_at, message.first_popped_at, message.popped_at) == (at(0), at(5), at(5))
    assert (message.finished_at, message.lease_until) == (None, None)


def test_a_complete_says_when(queue: Queue) -> None:
    id = queue.push("x", now=at(0))
    claimed(queue, now=at(5)).complete(now=at(8))
    (message,) = queue.history()
    assert (message.id, message.state, message.finished_at) == (id, "finished", at(8))
    assert message.run_time == timedelta(seconds=3)
    assert queue.lost(older_than=0, now=at(10_000)) == []
    assert counts(queue) == {"finished": 1}


@every_order
def test_the_order_is_that_of_the_queue(queue: Queue, design: str) -> None:
    ids = queue.push_many([*"abcde"])
    popped = ids_of([claimed(queue), *queue.pop_many(10)])
    assert (sorted(popped) if design == "heap" else popped) == (ids[::-1] if design == "lifo" else ids)


@every_order
def test_messages_that_were_not_completed_are_lost(queue: Queue) -> None:
    ids = queue.push_many([*"abcdef"], now=at(0))
    claims = {claim.id: claim for time in range(6) for claim in queue.pop_many(1, now=at(10 * time))}
    claims[ids[1]].complete(now=at(60))
    by_pop = [id for id in claims if id != ids[1]]

    def lost(**options: Any) -> list[int]:
        return ids_of(queue.lost(now=at(60), **options))

    # A message may take as long as the lease of the queue: after 30 s, those popped at 0, 10, 20 and 30 s may be lost.
    assert lost() == sorted(id for id in list(claims)[:4] if id != ids[1])
    assert lost(older_than=0) == sorted(by_pop)
    assert lost(older_than=timedelta(seconds=60)) == [id for id in list(claims)[:1] if id != ids[1]]
    assert lost(older_than=60.000001) == []
    assert lost(limit=2, older_than=0) == sorted(by_pop)[:2]
    assert {message.state for message in queue.lost(older_than=0, now=at(60))} == {"in_progress"}


def test_a_lost_message_can_still_be_completed(queue: Queue) -> None:
    queue.push("x", now=at(0))
    claim = claimed(queue, now=at(0))
    assert len(queue.lost(now=at(1000))) == 1
    claim.complete(now=at(1000))
    assert queue.lost(now=at(1000)) == []


def test_a_fail_keeps_the_error_of_a_lost_message(queue: Queue, place: Place) -> None:
    id = queue.push("x", now=at(0))
    claim = claimed(place.open("bob").queue("work"), now=at(0))
    assert claim.fail("why", now=at(1)) == "lost"
    assert queue.pop(now=at(10_000)) is None
    (message,) = queue.lost(now=at(31))
    assert (message.id, message.finished_at) == (id, None)
    assert [(error.attempt, error.at, error.consumer, error.error) for error in message.errors] == [
        (1, at(1), "bob", "why")
    ]
    assert counts(queue) == {}
    assert queue.dead() == []


FINISHES = {"complete": lambda claim: claim.complete(), "fail": lambda claim: claim.fail("why")}


@pytest.mark.parametrize("first", FINISHES)
@pytest.mark.parametrize("second", FINISHES)
def test_the_fence(queue: Queue, first: str, second: str) -> None:
    """A message is finished once, whatever is called afterwards."""
    queue.push("x")
    claim = claimed(queue)
    FINISHES[first](claim)
    before = snapshot(queue)
    error = refuses(LeaseLost, FINISHES[second], claim)
    assert error.ids == (claim.id,)
    assert snapshot(queue) == before


def test_the_token_of_another_claim_finishes_nothing(queue: Queue) -> None:
    queue.push_many([*"ab"])
    one, other = claimed(queue), claimed(queue)
    before = snapshot(queue)
    refuses(LeaseLost, Claim.of(queue, one.id, other.token).complete)
    refuses(LeaseLost, Claim.of(queue, one.id, other.token).fail)
    assert snapshot(queue) == before


def test_complete_many_leaves_the_lost_alone(queue: Queue) -> None:
    queue.push_many([*"abc"])
    batch = [*queue.pop_many(2), claimed(queue)]
    batch[1].fail("why")
    assert refuses(LeaseLost, queue.complete_many, batch).ids == (batch[1].id,)
    assert counts(queue) == {"finished": 2}
    assert ids_of(queue.lost(older_than=0)) == [batch[1].id]


LEASED = {
    "release": lambda claim: claim.release(),
    "extend": lambda claim: claim.extend(60),
    "release_many": lambda claim: claim.queue.release_many([claim]),
}


@pytest.mark.parametrize("verb", LEASED)
def test_there_is_no_lease(queue: Queue, verb: str) -> None:
    queue.push("x")
    refuses(BadInput, queue.pop, lease=60)
    refuses(BadInput, queue.pop_many, 2, lease=60)
    claim = claimed(queue)
    before = snapshot(queue)
    refuses(BadInput, LEASED[verb], claim)
    assert snapshot(queue) == before
    claim.complete()


def test_prefetch_is_refused(queue: Queue) -> None:
    queue.push_many([*"ab"])
    refuses(BadInput, lambda: list(queue.consume(wait=0, prefetch=2)))
    assert sum(counts(queue).values()) == 2
    for message in queue.consume(wait=0):
        message.complete()
    assert counts(queue) == {"finished": 2}


def test_receive_completes_or_loses(queue: Queue) -> None:
    first = queue.push("x")
    with queue.receive() as message:
        assert message.id == first
    lost = []
    for interrupt in (ZeroDivisionError, KeyboardInterrupt, SystemExit):
        lost.append(queue.push("x"))
        with pytest.raises(interrupt), queue.receive():
            raise interrupt
    assert counts(queue) == {"finished": 1}
    messages = queue.lost(older_than=0)
    assert ids_of(messages) == lost
    assert [message.errors[0].error.split()[-1] for message in messages] == [
        "ZeroDivisionError",
        "KeyboardInterrupt",
        "SystemExit",
    ]


def pop_and_die(place: Place) -> None:
    claimed(place.open("victim").queue("work"))
    signal.raise_signal(signal.SIGKILL)


def test_a_killed_consumer_takes_its_message_along(queue: Queue, place: Place) -> None:
    ids = queue.push_many([*"ab"])
    victim = processes.Process(target=pop_and_die, args=(place,))
    victim.start()
    victim.join(60)
    assert victim.exitcode == -signal.SIGKILL
    (message,) = queue.lost(older_than=0)
    assert message.consumer == "victim"
    others = queue.pop_many(10)
    assert ids_of(others) == [id for id in ids if id != message.id]
    assert queue.pop(now=at(0)) is None


def test_two_consumers_never_have_the_same(queue: Queue, place: Place) -> None:
    ids = queue.push_many(map(str, range(40)))

    def consume(queue: Consumer) -> list[int]:
        return [message.id for message in queue.consume(wait=0)]

    with ThreadPoolExecutor(2) as threads:
        popped = [id for ids in threads.map(consume, [queue, place.open().queue("work")]) for id in ids]
    assert sorted(popped) == ids


@pytest.mark.parametrize("way", ["complete", "fail"])
def test_it_belongs_to_the_transaction(queue: Queue, caller: Caller, way: str) -> None:
    queue.push("x")
    before = snapshot(queue)
    claim = claimed(queue, connection=caller.connection)
    assert snapshot(queue) == before
    caller.rollback()
    assert snapshot(queue) == before
    refuses(LeaseLost, claim.complete)
    claim = claimed(queue, connection=caller.connection)
    caller.commit()
    after = snapshot(queue)
    for end in (caller.rollback, caller.commit):
        getattr(claim, way)(connection=caller.connection)
        assert snapshot(queue) == after
        end()
    assert snapshot(queue) != after
    assert counts(queue) == ({"finished": 1} if way == "complete" else {})


def test_a_take_is_finished_at_once(queue: Queue, db: Database) -> None:
    """The commit is the acknowledgement."""
    id = queue.push("x")
    with db.engine.begin() as connection:
        assert queue.take(connection) is not None
    assert ids_of(queue.history()) == [id]
    assert queue.lost(older_than=0) == []
    assert counts(queue) == {"finished": 1}


def test_old_lost_messages_go_with_the_history(queue: Queue) -> None:
    old, young, done, waiting = (queue.push("x", now=at(0)) for _ in range(4))
    claims = sorted(queue.pop_many(4, now=at(0)), key=lambda claim: claim.id)
    assert ids_of(claims) == [old, young, done, waiting]
    claims[2].complete(now=at(60))
    late = queue.push("x", now=at(60))
    claimed(queue, now=at(60))
    assert queue.purge_history(100, now=at(100)) == 3
    assert ids_of(queue.history()) == [late, done]
    assert ids_of(queue.lost(now=at(100))) == [late]
    assert queue.purge_history(timedelta(seconds=40), now=at(100)) == 2
    assert queue.history() == []


def test_lost_is_for_at_most_once_only(db: Database, queue: Queue) -> None:
    other = db.create_queue("other")
    assert "dead()" in refuses(BadInput, other.lost).remedy
    refuses(BadInput, queue.lost, 0)
    refuses(BadInput, queue.lost, older_than=-1)
    refuses(BadInput, queue.lost, older_than="1")


@pytest.mark.parametrize(
    "option",
    [{"strict": True}, {"groups": True}, {"history": "none"}, {"delivery": "twice"}, {"delivery": None}],
    ids=str,
)
def test_what_does_not_go_together(db: Database, option: dict[str, Any]) -> None:
    refuses(BadDefinition, db.create_queue, "work", **{"delivery": "at_most_once", **option})
    assert db.queues() == []


def test_it_keeps_a_retention(db: Database) -> None:
    queue = db.create_queue("work", delivery="at_most_once", history=60)
    assert queue.definition.retention == 60
