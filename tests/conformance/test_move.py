"""A move takes messages from one queue to another, whole and with all that they have."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tablequeue import ALL, Database, Message, NewMessage, aio
from tablequeue.errors import BadInput, DuplicateKey
from tests import checks
from tests.servers import Place
from tests.support import at, claimed, counts, found, refuses

pytestmark = pytest.mark.quick

KEPT = "payload headers key group priority due_at attempts errors producer consumer pushed_at first_popped_at".split()


def kept(message: Message) -> list[Any]:
    return [getattr(message, name) for name in KEPT]


def test_a_message_keeps_what_it_has(db: Database) -> None:
    checks.check_move(db.create_queue("a", max_attempts=2))


def test_scheduled_and_dead_stay_so(db: Database) -> None:
    source, other = db.create_queue("a", max_attempts=1), db.create_queue("b")
    dead = source.push("dead")
    claimed(source).fail("no")
    later = source.push("later", due=at(0), headers={"a": [1]}, key="k")
    before = {id: found(source, id) for id in (dead, later)}
    moved = source.move(ALL, to=other)
    assert moved.keys() == before.keys()
    for id, message in before.items():
        after = found(other, moved[id])
        assert (after.state, kept(after)) == (message.state, kept(message))
    assert counts(source) == {}
    assert other.pop() is None
    assert claimed(other, now=at(1)).payload == "later"
    assert other.redrive(ALL) == 1


def test_in_the_order_of_the_ids(db: Database) -> None:
    source, other = db.create_queue("a", order="priority"), db.create_queue("b")
    other.push(-1)
    ids = source.push_many(NewMessage(n, priority=n) for n in range(30))
    moved = source.move(ids[10:], to=other)
    assert [*moved] == ids[10:]
    assert [found(other, id).payload for id in moved.values()] == [*range(10, 30)]
    assert source.move(lambda message: message.payload % 2 == 0, to=other).keys() == {*ids[:10:2]}
    assert [claim.payload for claim in other.pop_many(100)] == [-1, *range(10, 30), *range(0, 10, 2)]
    assert {message.payload for message in source.peek()} == {1, 3, 5, 7, 9}


def test_only_a_state(db: Database) -> None:
    source, other = db.create_queue("a", max_attempts=1), db.create_queue("b")
    source.push(1)
    claimed(source).fail("no")
    source.push(2)
    source.push(3, delay=60)
    assert len(source.move(ALL, to=other, state="dead")) == 1
    assert (counts(source), counts(other)) == ({"ready": 1, "scheduled": 1}, {"dead": 1})


def test_what_a_consumer_holds_is_not_moved(db: Database) -> None:
    source, other = db.create_queue("a"), db.create_queue("b")
    ids = source.push_many(range(3))
    claim = claimed(source)
    assert f": {claim.id}, 999;" in refuses(BadInput, source.move, [*ids, 999], to=other).cause
    assert (counts(source), counts(other)) == ({"ready": 2, "in_progress": 1}, {})
    assert source.move(ALL, to=other).keys() == {*ids[1:]}
    claim.complete()
    refuses(BadInput, source.move, [claim.id], to=other)


def test_messages_of_a_pack_are_not_moved(db: Database) -> None:
    source, other = db.create_queue("a"), db.create_queue("b")
    ids = source.push_many(range(300))
    claims = source.pop_many(250)
    refuses(BadInput, source.move, [ids[0]], to=other)
    assert len(source.move(ALL, to=other)) == 50
    source.release_many(claims)
    assert len(source.move(ALL, to=other)) == 250
    assert counts(other) == {"ready": 300}


def test_in_a_queue_with_unique_for_the_time_of_a_key_begins_with_the_move(db: Database) -> None:
    source, other = db.create_queue("a", unique_for=60), db.create_queue("b", unique_for=60)
    source.push_many([NewMessage(1, key="k"), NewMessage(2, key="l"), 3], now=at(0))
    moved = source.move(ALL, to=other, now=at(50))
    other.complete_many(other.pop_many(3, now=at(50)), now=at(50))
    assert other.push(4, key="k", on_conflict="return", now=at(109)) == moved[1]
    assert other.push(4, key="k", on_conflict="return", now=at(110)) not in (None, moved[1])
    source.push(5, key="l", now=at(70))
    assert len(source.move(ALL, to=other, now=at(70))) == 1  # the key is taken there, by a message that is finished
    assert len(other.move(ALL, to=source, now=at(75))) == 2  # and here, by one that was moved
    assert source.push(6, key="l", on_conflict="skip", now=at(75)) is None


def test_a_key_that_is_taken_moves_nothing(db: Database) -> None:
    source, other = db.create_queue("a"), db.create_queue("b")
    ids = source.push_many([NewMessage(1), NewMessage(2, key="k"), NewMessage(3, key="l")])
    other.push(4, key="k")
    error = refuses(DuplicateKey, source.move, ids, to=other)
    assert error.keys == ("k",)
    assert "'b' have keys of messages to move: 'k'" in error.cause
    assert "'k'" in refuses(DuplicateKey, source.move, ALL, to=other).cause
    assert (counts(source), counts(other)) == ({"ready": 3}, {"ready": 1})
    claimed(other).complete()
    moved = source.move(ALL, to=other)
    assert refuses(DuplicateKey, other.push, 5, key="l").keys == ("l",)
    assert source.push(6, key="k")
    assert found(other, moved[ids[1]]).key == "k"


@pytest.mark.parametrize("target", [{}, {"order": "due"}, {"strict": True}, {"delivery": "at_most_once"}], ids=str)
@pytest.mark.parametrize("source", [{"history": "none"}, {"order": "due"}, {"strict": True}], ids=str)
def test_between_queues_of_any_kind(db: Database, source: dict[str, Any], target: dict[str, Any]) -> None:
    one, other = db.create_queue("a", **source), db.create_queue("b", **target)
    one.push_many(range(3))
    one.push(3, delay=timedelta(days=30_000))
    assert len(one.move(ALL, to=other)) == 4
    done = []
    while claim := other.pop():
        done.append(claim.payload)
        claim.complete()
    assert done == [0, 1, 2]
    assert sum(counts(other).get(state, 0) for state in ("scheduled", "blocked")) == 1
    one.push("next")
    assert claimed(one).payload == "next"


def test_groups_go_on_in_both(db: Database) -> None:
    one, other = db.create_queue("a", groups=True), db.create_queue("b", groups=True)
    ids = [one.push(f"{group}{n}", group=group) for n in range(3) for group in "xy"]
    held = claimed(one)
    assert held.payload == "x0"
    moved = one.move([ids[1], ids[2]], to=other)  # the head of y, and one behind that of x
    assert sorted(claim.payload for claim in other.pop_many(9)) == ["x1", "y0"]
    assert [claim.payload for claim in one.pop_many(9)] == ["y1"]
    held.complete()
    assert [claim.payload for claim in one.pop_many(9)] == ["x2"]
    assert len(moved) == 2


def test_what_is_refused(db: Database) -> None:
    queue = db.create_queue("a")
    queue.push(1)
    for other in [db.create_queue("text", payload="text"), db.create_queue("groups", groups=True), queue]:
        refuses(BadInput, queue.move, ALL, to=other)
        refuses(BadInput, other.move, ALL, to=queue)
    refuses(BadInput, queue.move, ALL, to=db.create_topic("events").subscribe("mail"))
    refuses(BadInput, queue.move, ALL, to=db.create_queue("c"), state="in_progress")
    refuses(BadInput, queue.move, ["x"], to=db.create_queue("c"))
    assert queue.move([], to=db.create_queue("c")) == {}
    assert counts(queue) == {"ready": 1}


def test_a_consumer_that_waits_gets_it(db: Database) -> None:
    source, other = db.create_queue("a"), db.create_queue("b")
    source.push("x")
    consumer = other.consume(wait=60)
    source.move(ALL, to=other)
    assert next(consumer).payload == "x"


def test_an_async_move(place: Place) -> None:
    async def move() -> dict[int, int]:
        db = await aio.connect(place.url, schema=place.schema)
        one, other = await db.create_queue("a"), await db.create_queue("b")
        try:
            await one.push(1)
            return await one.move(ALL, to=other)
        finally:
            await db.close()

    assert asyncio.run(move()) == {1: 1}


def test_more_than_a_batch(db: Database) -> None:
    source, other = db.create_queue("a"), db.create_queue("b")
    ids = source.push_many(range(2500))
    assert [*source.move(ALL, to=other)] == ids
    assert len(other.move([message.id for message in other.peek(2500)], to=source)) == 2500


def test_an_expiry_is_kept(db: Database) -> None:
    source, other, plain = db.create_queue("a", expires=60), db.create_queue("b", expires=600), db.create_queue("c")
    ids = source.push_many([NewMessage("short"), NewMessage("long", expires=900)], now=at(0))
    source.move(ids, to=other, now=at(1))
    assert claimed(other, now=at(61)).payload == "long"
    assert other.pop(now=at(61)) is None
    last = source.push("last", now=at(0))
    source.move([last], to=plain, now=at(1))
    assert claimed(plain, now=at(100)).payload == "last"
