"""create_queue, queue, queues, drop, purge, dead, redrive, and names of queues."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tablequeue import ALL, Backoff, Database, Definition, NewMessage, Queue
from tablequeue.errors import BadDefinition, BadInput, QueueDiffers, QueueNotFound
from tablequeue.model.definition import HISTORIES, PAYLOADS
from tests.servers import Place
from tests.support import DESIGNS, at, claimed, counts, ids_of, refuses

pytestmark = [pytest.mark.quick, pytest.mark.needs("plain_push")]

DEFINITIONS = {
    f"{design}-{payload}-{history}": DESIGNS[design] | {"payload": payload, "history": history}
    for design in DESIGNS
    for payload in PAYLOADS
    for history in (*HISTORIES, 3600)
}
LONGEST = "q" + "_9" * 23 + "z"


def test_reading_creates_nothing(place: Place) -> None:
    db = place.open()
    assert db.queues() == []
    error = refuses(QueueNotFound, db.queue, "work")
    assert place.schema is None or place.schema in error.cause
    assert (db.queues(), db.upgrade()) == ([], {})
    assert db.has_schema() == (place.schema is None)
    db.create_queue("work")
    assert db.has_schema()


def test_a_definition_is_kept(place: Place) -> None:
    db = place.open()
    for number, options in enumerate(DEFINITIONS.values()):
        db.create_queue(f"work_{number}", **options)
    other = place.open()
    assert len(other.queues()) == len(DEFINITIONS)
    for number, (name, options) in enumerate(DEFINITIONS.items()):
        assert other.queue(f"work_{number}").definition == Definition(**options), name


def test_every_option_is_kept(place: Place) -> None:
    backoff = Backoff(base=0.5, factor=3, cap=99.5, jitter=0)
    options: dict[str, Any] = {"lease": 1.5, "max_attempts": 7, "backoff": backoff, "delivery": "at_most_once"}
    made = place.open().create_queue("work", **options)
    assert place.open().queue("work").definition == made.definition == Definition(**options)


def test_creating_twice_is_a_no_op(place: Place, queue: Queue, options: dict[str, Any]) -> None:
    queue.push("x")
    again = place.open().create_queue("work", **options)
    assert counts(again) == {"ready": 1}


def test_creating_with_another_definition_shows_the_difference(place: Place) -> None:
    first = place.open().create_queue("work", order="fifo", lease=5)
    first.push(1)
    error = refuses(QueueDiffers, place.open().create_queue, "work", order="heap", lease=6)
    for words in ("'work'", "order: 'fifo' is not 'heap'", "lease: 5 is not 6"):
        assert words in str(error)
    assert "payload" not in error.cause
    assert counts(first) == {"ready": 1}


IMPOSSIBLE: list[dict[str, Any]] = [
    {"order": "random"},
    {"order": None},
    {"payload": "xml"},
    {"history": True},
    {"history": "7"},
    {"history": None},
    {"history": 0},
    {"history": -1},
    {"history": timedelta(0)},
    {"history": float("inf")},
    {"history": 3.3e9},
    {"strict": 1},
    {"strict": None},
    {"groups": "yes"},
    {"strict": True, "groups": True},
    {"strict": True, "order": "lifo"},
    {"strict": True, "order": "heap"},
    {"strict": True, "order": "due"},
    {"groups": True, "order": "priority"},
    {"groups": True, "order": "lifo"},
    {"delivery": "exactly_once"},
    {"delivery": True},
    {"lease": 0},
    {"lease": -1},
    {"lease": "60"},
    {"lease": float("inf")},
    {"lease": 3.3e9},
    {"max_attempts": 0},
    {"max_attempts": 1.5},
    {"max_attempts": True},
    {"backoff": 5},
    {"backoff": Backoff(base=-1)},
    {"backoff": Backoff(factor=0)},
    {"backoff": Backoff(cap=float("nan"))},
    {"backoff": Backoff(jitter=2)},
]


def test_a_definition_that_cannot_be(db: Database) -> None:
    for option in IMPOSSIBLE:
        refuses(BadDefinition, db.create_queue, "work", **option)
        assert db.queues() == [], option


def test_an_option_that_is_none(db: Database) -> None:
    assert "ordr" in refuses(BadInput, db.create_queue, "work", ordr="fifo").cause


def test_names(place: Place) -> None:
    database, other = place.open(), place.open()
    for name in ("a", "q1", "a_", "select", "table", "order", "none", "x_queues", LONGEST):
        queue = database.create_queue(name)
        queue.push(1)
        claimed(queue).complete()
        assert other.queues() == [name]
        assert counts(other.queue(name)) == {"finished": 1}
        queue.drop()


def test_a_name_that_is_nearly_right(db: Database) -> None:
    db.create_queue("emails")
    assert "'emails'" in refuses(QueueNotFound, db.queue, "email").remedy


def test_dropping_a_queue_leaves_the_one_named_like_its_history(db: Database) -> None:
    without = db.create_queue("x", history="none")
    other = db.create_queue("x_history")
    other.push("unharmed")
    without.drop()
    assert claimed(other).payload == "unharmed"


def test_a_table_of_somebody_else_is_not_taken(db: Database, place: Place) -> None:
    db.create_queue("other")
    place.execute(f"create table {place.table('work')} (precious integer)")
    place.execute(f"insert into {place.table('work')} values (1)")  # noqa: S608 (a name of this test's own)
    refuses(QueueDiffers, db.create_queue, "work")
    assert db.queues() == ["other"]
    assert list(place.execute(f"select precious from {place.table('work')}")[0]) == [1]  # noqa: S608


def test_drop(place: Place, queue: Queue) -> None:
    queue.push("x")
    claim = claimed(queue)
    queue.push("y")
    other = place.open()
    other.queue("work").drop()
    assert other.queues() == []
    for verb in (queue.pop, queue.stats, queue.peek, queue.purge, queue.history, claim.complete):
        refuses(QueueNotFound, verb)
    refuses(QueueNotFound, queue.push, "z")
    refuses(QueueNotFound, queue.push_many, ["z"] * 1001)
    refuses(QueueNotFound, other.queue, "work")
    queue.drop()
    again = other.create_queue("work", payload="bytes")
    assert counts(again) == {}


def test_purge_leaves_what_is_not_waiting(queue: Queue) -> None:
    dead = queue.push("dead", now=at(0))
    for _ in range(3):
        claimed(queue, now=at(0)).fail("no", retry_in=0, now=at(0))
    queue.push("done")
    claimed(queue).complete()
    queue.push("popped")
    claim = claimed(queue)
    queue.push_many(["ready"] * 1500)
    queue.push_many(["scheduled"] * 700, delay=600)
    assert queue.purge() == 2200
    assert counts(queue) == {"in_progress": 1, "dead": 1, "finished": 1}
    assert ids_of(queue.dead()) == [dead]
    claim.complete()
    assert queue.purge() == 0


def bury(queue: Queue, number: int) -> list[int]:
    """Make dead letters, each with an error for every attempt."""
    ids = queue.push_many(map(str, range(number)))
    for _ in range(queue.definition.max_attempts):
        for claim in queue.pop_many(number):
            claim.fail(f"attempt {claim.attempt}", retry_in=0)
    return ids


@pytest.mark.needs("many_in_progress")
def test_redrive_gives_all_attempts_back_and_keeps_the_errors(queue: Queue) -> None:
    first, second, third = bury(queue, 3)
    assert ids_of(queue.dead()) == [first, second, third]
    assert ids_of(queue.dead(2)) == [first, second]
    assert queue.redrive([second, third + 100]) == 1
    claim = claimed(queue)
    assert (claim.id, claim.attempt) == (second, 1)
    claim.fail("attempt 1 again", retry_in=0)
    message = queue.peek()[0]
    assert [error.error for error in message.errors] == ["attempt 1", "attempt 2", "attempt 3", "attempt 1 again"]
    assert queue.redrive(ALL) == 2
    assert queue.redrive(ALL) == 0
    assert queue.redrive([]) == 0
    assert sorted(ids_of(queue.pop_many(5))) == [first, second, third]


def test_redrive_of_ids_leaves_living_messages_alone(queue: Queue) -> None:
    popped, scheduled = queue.push("popped"), queue.push("scheduled", delay=60)
    claim = claimed(queue)
    assert queue.redrive([popped, scheduled]) == 0
    assert queue.purge_dead([popped, scheduled]) == 0
    claim.complete()
    assert counts(queue) == {"scheduled": 1, "finished": 1}


def test_redrive_of_many(db: Database) -> None:
    queue = db.create_queue("work", max_attempts=1)
    queue.push_many(range(2100), now=at(0))
    queue.pop_many(2100, lease=1, now=at(0))
    for _ in range(3):
        queue.pop_many(1, now=at(1))
    assert counts(queue) == {"dead": 2100}
    assert queue.redrive(ALL) == 2100
    assert counts(queue) == {"ready": 2100}


@pytest.mark.needs("many_in_progress")
def test_purge_dead(queue: Queue) -> None:
    first, second, third = bury(queue, 3)
    queue.push("ready")
    assert queue.purge_dead([second]) == 1
    assert ids_of(queue.dead()) == [first, third]
    assert queue.purge_dead(ALL) == 2
    assert counts(queue) == {"ready": 1}


def test_invalid_ids(queue: Queue) -> None:
    invalid: list[Any] = ["1", 1.0, True, -1, 1 << 63, None]
    for id in invalid:
        refuses(BadInput, queue.redrive, [id])
        refuses(BadInput, queue.purge_dead, [id])
        refuses(BadInput, queue.find, id)


# Options that a queue of each design refuses, and the reason in the error.
UNWANTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a priority in a fifo": ({}, {"priority": 1}),
    "a priority in a heap": ({"order": "heap"}, {"priority": 0}),
    "a priority that is no number": ({"order": "priority"}, {"priority": "high"}),
    "a priority with a fraction": ({"order": "priority"}, {"priority": 1.5}),
    "a priority that is a boolean": ({"order": "priority"}, {"priority": True}),
    "a priority too high": ({"order": "priority"}, {"priority": 1 << 31}),
    "a priority too low": ({"order": "priority"}, {"priority": -(1 << 31)}),
    "a group in a fifo": ({}, {"group": "a"}),
    "a group in a strict queue": ({"strict": True}, {"group": "a"}),
    "no group in a queue with groups": ({"groups": True}, {}),
    "an empty group": ({"groups": True}, {"group": ""}),
    "a group too long": ({"groups": True}, {"group": "a" * 256}),
    "a group that is no string": ({"groups": True}, {"group": 1}),
    "a group with a NUL": ({"groups": True}, {"group": "a\0"}),
    "a delay and a due time": ({}, {"delay": 1, "due": at(1)}),
    "a conflict that is none": ({}, {"key": "k", "on_conflict": "ignore"}),
}


def test_what_a_push_does_not_take(db: Database) -> None:
    for number, (what, (definition, options)) in enumerate(UNWANTED.items()):
        queue = db.create_queue(f"work{number}", **definition)
        refuses(BadInput, queue.push, 1, **options)
        of_all = {name: value for name, value in options.items() if name != "key"}
        own = {name: value for name, value in options.items() if name == "key"}
        refuses(BadInput, queue.push_many, [NewMessage(1, **own)], **of_all)
        refuses(BadInput, queue.push_many, [1], **of_all)
        refuses(BadInput, queue.push_many, [1] * 1001, **of_all)
        assert counts(queue) == {}, what
