"""extend_many and fail_many: a whole batch in one call, with an exact account."""

from __future__ import annotations

import pytest

from tablequeue import Backoff, Database, LeaseLost, Queue, aio
from tablequeue.errors import BadInput
from tests.async_support import in_loop
from tests.servers import Place
from tests.support import at, claimed, counts, found, ids_of, refuses, snapshot

pytestmark = [
    pytest.mark.quick,
    pytest.mark.needs("many_in_progress"),
    pytest.mark.designs("distinct"),
    pytest.mark.variants("newer"),
]


def test_extend_many(queue: Queue) -> None:
    ids = queue.push_many([*"abc"], now=at(0))
    batch = queue.pop_many(3, lease=10, now=at(0))
    assert queue.extend_many(batch, 100, now=at(5)) == [at(105)] * 3
    assert [found(queue, id).lease_until for id in ids] == [at(105)] * 3
    assert queue.extend_many(batch[:1], now=at(6)) == [at(6 + queue.definition.lease)]


def test_extend_many_leaves_the_lost_alone_and_extends_the_others(queue: Queue) -> None:
    ids = queue.push_many([*"abcde"], now=at(0))
    batch = sorted(queue.pop_many(4, lease=10, now=at(0)) + queue.pop_many(1, lease=10, now=at(0)), key=lambda c: c.id)
    batch[1].complete(now=at(1))
    batch[3].release(now=at(1))
    error = refuses(LeaseLost, queue.extend_many, reversed(batch), 100, now=at(1))
    assert error.ids == (ids[1], ids[3])
    assert "2 of 5" in error.cause
    assert "extended" in error.cause
    held = [found(queue, ids[place]) for place in (0, 2, 4)]
    assert [message.lease_until for message in held] == [at(101)] * 3


@pytest.mark.parametrize("number", [1, 200])
def test_extend_held_extends_the_lease_of_whoever_has_it(db: Database, number: int) -> None:
    """On PostgreSQL many messages at once are one row."""
    queue = db.create_queue("work", payload="text", max_attempts=9)
    ids = queue.push_many(["x"] * (number + 1), now=at(0))
    batch = queue.pop_many(number, lease=10, now=at(0))
    assert queue.extend_held(ids[number // 2], 100, now=at(5))
    assert found(queue, ids[number // 2]).lease_until == at(105)
    assert not queue.extend_held(ids[-1], 100, now=at(5)), "nobody has it"
    assert not queue.extend_held(ids[-1] + 1, 100, now=at(5)), "it is not there"
    assert found(queue, ids[-1]).state == "ready"
    queue.complete_many(batch, now=at(9))
    assert not queue.extend_held(ids[number // 2], 100, now=at(9))
    again = claimed(queue, lease=10, now=at(9))
    assert queue.extend_held(again.id, 0, now=at(10))
    assert claimed(queue, lease=10, now=at(10)).attempt == 2
    refuses(LeaseLost, again.complete, now=at(10))


def test_fail_many(place: Place) -> None:
    queue = place.open().create_queue("work", max_attempts=2, backoff=Backoff(base=10, jitter=0))
    ids = queue.push_many([1, 2, 3], now=at(0))
    claimed(queue, now=at(0)).fail("first", retry_in=0, now=at(0))
    batch = sorted(queue.pop_many(1, now=at(0)) + queue.pop_many(5, now=at(0)), key=lambda claim: claim.id)
    assert queue.fail_many(reversed(batch), "all of them", now=at(1)) == ["scheduled", "scheduled", "dead"]
    assert [found(queue, id).state for id in ids] == ["dead", "scheduled", "scheduled"]
    assert [found(queue, id).due_at for id in ids[1:]] == [at(11)] * 2
    assert [[error.error for error in found(queue, id).errors] for id in ids] == [
        ["first", "all of them"],
        ["all of them"],
        ["all of them"],
    ]
    again = queue.pop_many(5, now=at(20))
    assert queue.fail_many(again, retry=False, now=at(20)) == ["dead", "dead"]


def test_each_message_waits_by_its_own_attempts_and_jitter(place: Place) -> None:
    queue = place.open().create_queue("work", backoff=Backoff(base=100, factor=1000, cap=1e6, jitter=0.5))
    queue.push_many(range(20), now=at(0))
    queue.fail_many(queue.pop_many(5, now=at(0)), retry_in=0, now=at(0))
    batch = queue.pop_many(20, now=at(1))
    assert queue.fail_many(batch, now=at(1)) == ["scheduled"] * 20
    waits = {claim.attempt: set[float]() for claim in batch}
    for claim in batch:
        due = found(queue, claim.id).due_at
        assert due is not None
        waits[claim.attempt].add((due - at(1)).total_seconds())
    assert {attempts: len(each) for attempts, each in waits.items()} == {1: 15, 2: 5}
    assert all(50 <= wait <= 100 for wait in waits[1])
    assert all(50_000 <= wait <= 100_000 for wait in waits[2])


def test_fail_many_leaves_the_lost_alone_and_fails_the_others(queue: Queue) -> None:
    ids = queue.push_many([*"abcdef"])
    by_id = {claim.id: claim for claim in queue.pop_many(2) + queue.pop_many(4)}
    by_id[ids[1]].complete()
    by_id[ids[4]].release()
    error = refuses(LeaseLost, queue.fail_many, by_id.values(), "no", retry_in=0)
    assert error.ids == (ids[1], ids[4])
    assert "2 of 6" in error.cause
    assert [len(found(queue, id).errors) for id in ids if id != ids[1]] == [1, 1, 1, 0, 1]
    assert counts(queue) == {"finished": 1, "ready": 5}


def test_many_of_nothing_and_of_one_twice(queue: Queue) -> None:
    assert queue.extend_many([]) == []
    assert queue.fail_many([]) == []
    queue.push("x", now=at(0))
    claim = claimed(queue, now=at(0))
    assert queue.extend_many([claim, claim], 60, now=at(0)) == [at(60)] * 2
    assert queue.fail_many([claim, claim], retry_in=0, now=at(0)) == ["ready"] * 2
    assert len(found(queue, claim.id).errors) == 1


def test_large_batches(queue: Queue) -> None:
    """More than an engine changes by one statement."""
    queue.push_many(map(str, range(1100)), now=at(0))
    batch = queue.pop_many(1100, now=at(0))
    assert len(batch) == 1100
    assert queue.extend_many(batch, 90, now=at(0)) == [at(90)] * 1100
    assert queue.fail_many(batch, "no", retry_in=5, now=at(1)) == ["scheduled"] * 1100
    assert counts(queue) == {"scheduled": 1100}


def test_a_refused_call_changes_nothing(queue: Queue) -> None:
    queue.push_many([*"ab"])
    batch = queue.pop_many(2)
    before = snapshot(queue)
    refuses(BadInput, queue.extend_many, batch, -1)
    refuses(BadInput, queue.fail_many, batch, retry_in=-1)
    refuses(BadInput, queue.fail_many, batch, 1)
    assert snapshot(queue) == before


def test_a_rollback_undoes_the_whole_call(db: Database, queue: Queue) -> None:
    queue.push_many([*"abc"])
    batch = queue.pop_many(1) + queue.pop_many(2)
    before = snapshot(queue)
    with db.engine.connect() as connection, connection.begin() as transaction:
        assert len(queue.extend_many(batch, 1000, connection=connection)) == 3
        assert queue.fail_many(batch, retry_in=0, connection=connection) == ["ready"] * 3
        transaction.rollback()
    assert snapshot(queue) == before


def test_at_most_once(place: Place) -> None:
    queue = place.open().create_queue("work", delivery="at_most_once")
    ids = queue.push_many([1, 2, 3])
    batch = queue.pop_many(3)
    batch[1].complete()
    assert refuses(LeaseLost, queue.fail_many, batch, "no").ids == (ids[1],)
    assert sorted(message.id for message in queue.history() if message.errors) == [ids[0], ids[2]]
    queue.push(4)
    assert queue.fail_many(queue.pop_many(1), "no") == ["lost"]
    refuses(BadInput, queue.extend_many, batch)


def test_groups_go_on_after_their_dead_letters(place: Place) -> None:
    queue = place.open().create_queue("work", groups=True)
    for group in "abc":
        queue.push_many([1, 2], group=group)
    assert queue.fail_many(queue.pop_many(3), retry=False) == ["dead"] * 3
    assert sorted(claim.group or "" for claim in queue.pop_many(9)) == ["a", "b", "c"]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_subscription(place: Place, ordered: bool) -> None:
    topic = place.open().create_topic("events", groups=ordered)
    mail = topic.subscribe("mail", ordered=ordered, max_attempts=2)
    for number in range(6):
        topic.push(number, group=str(number) if ordered else None)
    batch = mail.pop_many(6)
    assert len(batch) == 6
    batch[0].complete()
    lost = refuses(LeaseLost, mail.extend_many, batch, 600, now=at(0))
    assert lost.ids == (batch[0].id,)
    assert mail.extend_many(batch[1:], 600, now=at(0)) == [at(600)] * 5
    assert mail.fail_many(batch[1:3], "no", retry_in=0) == ["ready"] * 2
    assert mail.extend_held(batch[5].id, 600, now=at(0)) is ordered, "else it is in a range"
    lost = refuses(LeaseLost, mail.fail_many, batch[1:4], "again", retry=False)
    assert lost.ids == tuple(ids_of(batch[1:3]))
    assert found(mail, batch[3].id).state == "dead"
    apart = mail.pop_many(2)
    assert ids_of(apart) == ids_of(batch[1:3])
    assert mail.extend_held(apart[0].id, 600, now=at(0))
    assert mail.extend_many([*apart, batch[4]], 700, now=at(0)) == [at(700)] * 3
    assert mail.fail_many([*apart, batch[4]], "once more", retry_in=5) == ["dead", "dead", "scheduled"]
    batch[5].complete()
    assert counts(mail) == {"finished": 2, "dead": 3, "scheduled": 1}


@in_loop
async def test_async(place: Place) -> None:
    place.open().create_queue("work").push_many([1, 2])
    async with await aio.connect(place.url, schema=place.schema) as database:
        queue = await database.queue("work")
        batch = await queue.pop_many(2)
        assert await queue.extend_many(batch, 60, now=at(0)) == [at(60)] * 2
        assert await queue.extend_held(batch[0].id, 60, now=at(0))
        assert await queue.fail_many(batch, "no", retry_in=0) == ["ready"] * 2
