"""A paused queue hands out nothing, to nobody; pushes and finishes go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any

import pytest

from tablequeue import Database, Queue
from tablequeue.errors import BadInput
from tests.servers import Place
from tests.support import at, claimed, ids_of, refuses

pytestmark = [pytest.mark.quick, pytest.mark.needs("plain_push"), pytest.mark.designs("distinct")]


def test_nothing_is_claimed_until_the_queue_is_resumed(place: Place, queue: Queue) -> None:
    ids = queue.push_many([*"abc"])
    held = claimed(queue)
    queue.pause()
    other = place.open().queue("work")
    assert (queue.pop(), other.pop_many(10), other.pop_many(1000)) == (None, [], [])
    with place.sa_engine().connect() as connection:
        assert other.take(connection) is None
        assert other.pop(connection=connection) is None if queue.definition.kind == "queue" else True
    queue.push("d")
    held.complete()
    assert queue.stats().paused_until == datetime(9999, 1, 1, tzinfo=UTC)
    other.resume()
    assert queue.stats().paused_until is None
    assert held.id in ids
    assert claimed(queue).id != held.id


def test_a_completion_that_claims_only_completes(queue: Queue) -> None:
    queue.push_many([*"ab"])
    batch = queue.pop_many(1)
    queue.pause()
    assert queue.pop_many(5, completing=batch) == []
    assert queue.stats().in_progress == 0
    queue.resume()
    assert len(queue.pop_many(5)) == 1


def test_a_pause_ends_by_itself(queue: Queue) -> None:
    queue.push("a", now=at(0))
    queue.pause(until=at(10))
    assert queue.pop(now=at(9)) is None
    assert queue.stats(now=at(9)).paused_until == at(10)
    assert claimed(queue, now=at(10)).payload == "a"
    assert queue.stats(now=at(10)).paused_until is None


def test_a_pause_of_a_length_counts_from_the_databases_clock(queue: Queue) -> None:
    queue.push("a")
    queue.pause(timedelta(hours=1))
    assert queue.pop() is None
    until = queue.stats().paused_until
    assert until is not None
    assert queue.pop(now=until) is not None
    queue.pause(0)
    assert queue.stats().paused_until is None


def test_the_last_pause_wins(queue: Queue) -> None:
    queue.push("a", now=at(0))
    queue.pause()
    queue.pause(until=at(10))
    assert claimed(queue, now=at(10)).payload == "a"
    queue.resume()
    queue.resume()


def test_a_pause_is_a_part_of_the_callers_transaction(place: Place, queue: Queue) -> None:
    queue.push("a")
    with place.sa_engine().begin() as connection:
        queue.pause(connection=connection)
        connection.rollback()
    assert claimed(queue).payload == "a"


@pytest.mark.parametrize("options", [{}, {"concurrency": 5}, {"groups": "fair"}, {"groups": "fair", "per_group": 9}])
def test_a_pause_holds_in_the_transaction_that_begins_it(db: Database, options: dict[str, Any]) -> None:
    queue = db.create_queue("paused", **options)
    queue.push_many([*"abc"])
    with db.engine.connect() as connection, connection.begin() as transaction:
        queue.pause(connection=connection)
        assert queue.pop(connection=connection) is None
        assert queue.pop_many(2, connection=connection) == []
        assert queue.take(connection) is None
        transaction.rollback()
    assert len(queue.pop_many(3)) == 3


def test_a_time_without_a_zone_is_refused(queue: Queue) -> None:
    assert "time zone" in refuses(BadInput, queue.pause, datetime(2030, 1, 1)).cause
    refuses(BadInput, queue.pause, -1)
    refuses(BadInput, queue.pause, "soon")


def test_a_new_queue_of_the_name_is_not_paused(db: Database, queue: Queue) -> None:
    queue.pause()
    definition = queue.definition
    queue.drop()
    again = db.create_queue("work", **{name: getattr(definition, name) for name in ("order", "strict", "groups")})
    assert again.stats().paused_until is None


def test_a_waiting_consumer_goes_on_after_the_pause(queue: Queue) -> None:
    queue.pause()
    popped, begun = [], Event()

    def consume() -> None:
        begun.set()
        for message in queue.consume(wait=timedelta(minutes=1)):
            popped.append(message.id)
            message.complete()
            return

    consumer = Thread(target=consume)
    consumer.start()
    begun.wait()
    id = queue.push("a")
    queue.resume()
    consumer.join()
    assert popped == [id]


def test_other_queues_are_not_paused(db: Database, queue: Queue) -> None:
    other = db.create_queue("other")
    queue.pause()
    ids = other.push_many([*"ab"])
    assert ids_of(other.pop_many(5)) == ids
