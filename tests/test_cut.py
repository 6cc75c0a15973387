"""A connection that is cut at any answer of the server, while a queue or a topic is made, changed or dropped.

The call may then have taken effect or not. To call it again is always right, nothing is half done, and nothing is in
the way of what comes next.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Database, Rate
from tablequeue.errors import ConnectionLost, QueueNotFound
from tests.nightly import by_night
from tests.servers import KINDS, Kind, Place
from tests.suspended import await_the_client, relayed

# With a table of each kind that a drop of another one refers to, and with tables that only this queue has.
WHOLE: dict[str, Any] = {"groups": True, "results": True, "unique_for": 60}


@dataclass(frozen=True)
class Change:
    """A call of the catalogue, and what is there when it has been done."""

    call: Callable[[Database], Any]
    there: tuple[str, ...]
    """What a database has then: queues, topics and subscriptions."""
    before: Callable[[Database], Any] = lambda database: None


def make(database: Database) -> None:
    database.create_queue("work", payload="text").push_many(["x", "y"])


def make_topic(database: Database) -> None:
    topic = database.create_topic("events", payload="text")
    topic.subscribe("mail")
    topic.push("x")


CHANGES = {
    "create": Change(lambda database: database.create_queue("work", payload="text", **WHOLE), ("work",)),
    "drop": Change(
        lambda database: database.queue("work").drop(),
        (),
        lambda database: database.create_queue("work", payload="text", **WHOLE),
    ),
    "alter": Change(
        lambda database: database.queue("work").alter(rate=Rate(1000), results=True),
        ("work",),
        make,
    ),
    "rename": Change(lambda database: database.rename("events", "news"), ("news", "news/mail"), make_topic),
    "create_topic": Change(lambda database: database.create_topic("events", payload="text"), ("events",)),
    "subscribe": Change(
        lambda database: database.topic("events").subscribe("mail"),
        ("events", "events/mail"),
        lambda database: database.create_topic("events", payload="text"),
    ),
    "drop of a topic": Change(lambda database: database.topic("events").drop(), (), make_topic),
}


# By day a call is cut off at every third answer; and on PostgreSQL, where a change is one transaction, one of them is.
STEPS = (3, 1)
CASES = [
    (kind, name, step) for kind in KINDS if kind.name in ("mariadb", "postgresql") for name in CHANGES for step in STEPS
]


@pytest.mark.parametrize(
    ("kind", "name", "step"),
    by_night(CASES, lambda case: case[2] > 1 and (case[0].name == "mariadb" or case[1] == "rename")),
    ids=lambda value: value.name if isinstance(value, Kind) else str(value),
)
def test_a_change_that_is_cut_off_is_made_again(place: Place, kind: Kind, name: str, step: int) -> None:
    change = CHANGES[name]
    for answers in count(step=step):
        database = place.open()
        change.before(database)
        with relayed(place) as (relay, behind), ThreadPoolExecutor(1) as threads:
            acting = behind.open()
            acting.queues()  # it is connected
            relay.stop_after(answers)
            call = threads.submit(change.call, acting)
            while not (relay.stopped.wait(0.01) or call.done()):
                pass
            returned = not relay.stopped.is_set()
            if not returned:
                await_the_client(place, kind, relay)
            relay.cut()
            with suppress(ConnectionLost, QueueNotFound):
                call.result()
        with suppress(QueueNotFound):  # it had taken effect
            change.call(database)
        assert there(database) == change.there, f"after {answers} answers"
        check_use(database, change.there)
        check_names_are_free(place, database)
        if returned:
            break
    assert answers, "it was cut off in the call"


def there(database: Database) -> tuple[str, ...]:
    return (*sorted([*database.queues(), *database.topics(), *database.subscriptions()]),)


def check_use(database: Database, names: tuple[str, ...]) -> None:
    """Everything that is there can be used."""
    for name in names:
        if name in database.queues():
            queue = database.queue(name)
            group: dict[str, Any] = {"group": "g"} if queue.definition.groups else {}
            queue.push("new", key="k", **group)
            while claims := queue.pop_many(10):
                queue.complete_many(claims)
            assert queue.stats().finished
        elif name in database.topics():
            database.topic(name).push("new")
        else:
            consumer = database.consumer(name)
            assert consumer.pop_many(10)


def check_names_are_free(place: Place, database: Database) -> None:
    """Others can be made with the same names, and when they are dropped, too, no table is left of any of them."""
    for topic in database.topics():
        database.topic(topic).drop()
    for queue in database.queues():
        database.queue(queue).drop()
    for name in ("work", "events"):
        other = database.create_queue(name, order="priority", payload="text", history="none")
        other.push("x", priority=1)
        assert other.pop()
        other.drop()
    with place.sa_engine().connect() as connection:
        tables = sa.inspect(connection).get_table_names(place.schema)
    assert not [table for table in tables if table.startswith(("tq_work", "tq_events"))]
