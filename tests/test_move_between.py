"""A move between two databases: each message ends in the other one exactly once, with all that it has."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from tablequeue import Message, NewMessage, Queue
from tablequeue.errors import BadPayload, DuplicateKey
from tests.servers import KINDS, Kind, Place
from tests.support import at, claimed, counts, found, refuses

PAIRS = ("sqlite-postgresql", "postgresql-mariadb", "mariadb-sqlite", "sqlite-sqlite")


class Two(NamedTuple):
    """A fresh database to move from, and one to move to."""

    source: Place
    target: Place

    def queues(self, **options: Any) -> tuple[Queue, Queue]:
        first, second = (place.open().create_queue("work", **options) for place in self)
        return first, second


@pytest.fixture(params=PAIRS)
def two(kept: Callable[[str], sa.Engine], request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Two]:
    kinds = {kind.name: kind for kind in KINDS}
    places = []
    for name in request.param.split("-"):
        kind: Kind = kinds[name]
        url = kind.url(request) if kind.server else f"sqlite:///{tmp_path}/{secrets.token_hex(4)}.db"
        places.append(kind.place(url, f"test_{secrets.token_hex(8)}" if kind.has_schemas else None))
    yield Two(*places)
    for name, place in zip(request.param.split("-"), places, strict=True):
        kind = kinds[name]
        if place.schema and kind.drop_schema:
            with kept(place.url).begin() as connection:
                connection.exec_driver_sql(kind.drop_schema.format(place.schema))
        place.close()


def everything(queue: Queue) -> list[Message]:
    """All messages that wait, and the dead letters, by id."""
    states = ("ready", "scheduled", "blocked", "dead", "in_progress")
    return sorted((one for state in states for one in queue.peek(5000, state=state)), key=lambda one: one.id)  # type: ignore[arg-type]


def aside(queue: Queue) -> int:
    """How many messages are on their way."""
    moving = queue.context.engine.moving
    return len(queue.context.run(moving.aside, {"after": 0, "n": 5000}))


def test_a_message_keeps_what_it_has(two: Two) -> None:
    source, target = two.queues(max_attempts=2, order="priority")
    target.push("there")
    source.push("dead", key="dead", now=at(0))
    for _ in range(2):
        claimed(source, now=at(0)).fail('it\'s "no" ünd nein', retry_in=0, now=at(0))
    source.push({"tried": [1, None, 1e300]}, key="k", headers={"a": "ü"}, priority=5, now=at(1))
    claimed(source, now=at(2)).fail("once", retry_in=30, now=at(3))
    source.push("fresh", now=at(2))
    source.push("later", due=at(10_000_000), priority=-3)
    held = source.push("held", priority=9)
    claim = claimed(source)
    assert claim.id == held
    before = {one.id: one for one in everything(source) if one.id != held}
    moved = source.move(to=target)
    assert [*moved] == sorted(before)
    assert [*moved.values()] == sorted(moved.values())
    for id, message in before.items():
        assert found(target, moved[id]) == replace(message, id=moved[id])
    assert counts(source) == {"in_progress": 1}
    assert aside(source) == 0
    claim.release()
    assert source.move(to=target).keys() == {held}
    assert target.redrive() == 1
    assert source.move(to=target) == {}
    assert counts(source) == {}


@pytest.mark.parametrize(
    ("payload", "payloads"),
    [
        ("json", [None, [], "ü\x7f\u2028", {"a": [1.5, True, {"b": "\U0001f600"}]}, 10**30]),
        ("text", ["", " a ", "\u2028\U0001f600'\"\\\n", "x" * 100_000]),
        ("bytes", [b"", bytes(range(256)), b"\x00" * 70_000]),
    ],
)
def test_payloads_of_each_type(two: Two, payload: Any, payloads: list[Any]) -> None:
    source, target = two.queues(payload=payload)
    source.push_many(payloads)
    source.move(to=target)
    assert [claim.payload for claim in target.pop_many(9)] == payloads


@pytest.mark.parametrize("two", ["postgresql-mariadb"], indirect=True)
@pytest.mark.parametrize("options", [{}, {"groups": True}], ids=str)
def test_a_payload_that_the_target_cannot_hold_stays(two: Two, options: dict[str, Any]) -> None:
    source, target = two.queues(**options)
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    group = {"group": "x"} if options else {}
    source.push_many([*range(5), deep, *range(5, 10)], **group)  # type: ignore[call-overload]
    for _ in range(2):
        assert "these stay" in refuses(BadPayload, source.move, to=target).cause
    assert counts(target)["ready"] == (1 if options else 10)
    if options:
        assert counts(target)["blocked"] == 4, "and what is behind it"
        assert aside(source) == 6
    else:
        assert claimed(source).payload == deep
        assert aside(source) == 0


def test_what_expires_does_so_there(two: Two) -> None:
    source, target = two.queues(expires=60)
    source.push_many([NewMessage("short"), NewMessage("long", expires=900)], now=at(0))
    source.move(to=target, now=at(1))
    assert claimed(target, now=at(61)).payload == "long"
    assert target.pop(now=at(61)) is None


@pytest.mark.parametrize("options", [{"groups": True}, {"strict": True}], ids=str)
def test_groups_keep_their_order(two: Two, options: dict[str, Any]) -> None:
    """What is behind a message in progress stays; the source hands out no more."""
    source, target = two.queues(**options)
    group = {"group": "x"} if source.definition.groups else {}
    source.push_many(range(4), **group)  # type: ignore[call-overload]
    if group:
        source.push_many([10, 11], group="y")
    claim = claimed(source)
    assert claim.payload == 0
    if group:
        assert len(source.move(to=target)) == 2
        assert [message.payload for message in everything(source)] == [0, 1, 2, 3]
    else:
        assert source.move(to=target) == {}
    assert source.pop() is None
    claim.fail("no", retry_in=0)
    source.push(4, **group)  # type: ignore[call-overload]
    assert source.pop() is None, "the source is paused"
    assert len(source.move(to=target)) == 5
    done = []
    while batch := target.pop_many(9):
        done += [one.payload for one in batch]
        target.complete_many(batch)
    assert sorted(done) == [0, 1, 2, 3, 4, *([10, 11] if group else [])]
    assert [one for one in done if one < 10] == [0, 1, 2, 3, 4]


def test_a_key_that_is_taken_stays(two: Two) -> None:
    source, target = two.queues()
    target.push("there", key="k")
    ids = source.push_many([NewMessage(1), NewMessage(2, key="k"), NewMessage(3, key="l")])
    error = refuses(DuplicateKey, source.move, to=target)
    assert error.keys == ("k",)
    assert "the others were moved" in error.cause
    assert [message.id for message in everything(source)] == [ids[1]]
    assert aside(source) == 0
    assert [claim.payload for claim in target.pop_many(9)] == ["there", 1, 3]
    refuses(DuplicateKey, target.push, 4, key="l")
    target.context.run(target.context.messages.purge, {"state": "in_progress", "n": 9})
    assert source.move(to=target).keys() == {ids[1]}


def test_keys_for_a_time_stay_taken_there(two: Two) -> None:
    source, target = two.queues(key_for=300)
    source.push_many([NewMessage(1, key="k"), NewMessage(2)])
    source.move(to=target)
    claimed(target).complete()
    refuses(DuplicateKey, target.push, 3, key="k")
    source.push_many([NewMessage(4, key="l")])
    target.push(5, key="l")
    refuses(DuplicateKey, source.move, to=target)
    assert [message.payload for message in everything(source)] == [4]


def test_the_history_is_copied_once(two: Two) -> None:
    source, target = two.queues()
    ids = source.push_many(NewMessage(number, key=f"k{number}", headers={"a": number}) for number in range(1200))
    source.complete_many(source.pop_many(1100))
    source.cancel(ids[1100:1110])
    claimed(source).fail("once", retry_in=0)
    claimed(source).complete()
    copied: dict[int, int] = {}
    for batch in source.move_batches(to=target, history=True):
        copied |= batch.ids if batch.history else {}
    before = {message.id: message for message in source.history(5000)}
    assert [*copied] == sorted(before)
    after = {message.id: message for message in target.history(5000)}
    assert after == {copied[id]: replace(message, id=copied[id]) for id, message in before.items()}
    assert sorted(copied.values()) == [*copied.values()]
    claimed(target).complete()
    source.push("more")
    claimed(source).complete()
    again = [batch.ids for batch in source.move_batches(to=target, history=True) if batch.history]
    assert [len(ids) for ids in again] == [1]
    assert len(target.history(5000)) == 1113
    assert counts(target) == {"ready": 88, "finished": 1113}
