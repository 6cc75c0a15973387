"""A move between two databases: each message ends in the other one exactly once, with all that it has."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa

from tablequeue import Database, Message, NewMessage, Queue
from tablequeue.errors import BadInput, DuplicateKey
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


@pytest.fixture
def first_pair(two: Two, request: pytest.FixtureRequest) -> Two:
    """For what no engine does in its own way."""
    return two


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
        claimed(source, now=at(0)).fail("it's \"no\" ünd nein", retry_in=0, now=at(0))
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
