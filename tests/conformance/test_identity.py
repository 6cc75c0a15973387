"""A handle is of one queue: whoever has a dropped one open reaches none that gets its name, or its place, later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tablequeue import Database, aio
from tablequeue.aio import AsyncClaim
from tablequeue.errors import QueueNotFound
from tablequeue.ext import context_of
from tests import checks
from tests.servers import Place
from tests.support import claimed, counts, idle, ids_of, refuses

pytestmark = pytest.mark.quick


def test_a_handle_is_of_one_queue(db: Database) -> None:
    checks.check_a_handle_is_of_one_queue(db)


def test_a_handle_is_of_one_subscription(db: Database) -> None:
    checks.check_a_handle_is_of_one_subscription(db)


def test_the_table_of_a_dropped_queue_is_given_to_no_other_one(db: Database) -> None:
    tables = set()
    for number in range(1, 5):
        queue = db.create_queue("a" if number % 2 else "A")
        tables.add(context_of(queue).table.table_name)
        assert len(tables) == number
        queue.drop()


def test_a_queue_of_the_name_is_opened_anew(db: Database) -> None:
    old = db.create_queue("work", payload="text")
    old.drop()
    error = refuses(QueueNotFound, old.push, "x")
    assert "open the queue that has its name now" in error.remedy
    new = db.create_queue("work", payload="json")
    new.push(1)
    assert claimed(db.queue("work")).payload == 1


def test_dead_letters_reach_no_queue_that_was_made_in_place_of_theirs(db: Database, place: Place) -> None:
    letters, work = db.create_queue("letters"), db.create_queue("work", dead_letter_to="letters")
    late = place.open().queue("work")
    late.push_many([*"ab"])
    first, second = late.pop_many(2)
    work.alter(dead_letter_to=None)
    letters.drop()
    new = db.create_queue("letters")
    refuses(QueueNotFound, first.fail, retry=False)
    assert counts(new) == {}
    idle(late).pop()  # which looks at the definition again
    first.fail(retry=False)
    second.fail(retry=False)
    assert (counts(new), counts(work)) == ({}, {"dead": 2})


def test_an_async_handle_is_of_one_queue(db: Database, place: Place) -> None:
    async def main() -> None:
        async with await aio.connect(place.url, schema=place.schema) as database:
            old = await database.create_queue("work", payload="text")
            await old.push("a")
            held = await old.pop()
            assert isinstance(held, AsyncClaim)
            mail = await (await database.create_topic("events")).subscribe("mail")
            db.queue("work").drop()
            db.subscription("events/mail").drop()
            id = db.create_queue("work", payload="bytes").push(b"new")
            audit = db.topic("events").subscribe("audit")
            db.topic("events").push("for audit")
            calls: list[Callable[[], Any]] = [old.pop, old.peek, old.stats, old.purge, old.pause, held.complete]
            calls += [lambda: old.push("x"), lambda: old.push_many([*"xy"]), mail.pop, mail.stats]
            for call in calls:
                try:
                    await call()
                except QueueNotFound:
                    continue
                raise AssertionError("a dropped queue goes on")
            assert ids_of(db.queue("work").peek()) == [id]
            assert claimed(audit).payload == "for audit"

    asyncio.run(main())


def test_a_topic_that_was_renamed_is_subscribed_to_by_an_older_handle(place: Place, db: Database) -> None:
    topic = db.create_topic("events", payload="text")
    topic.subscribe("mail")
    older = place.open().topic("events")
    db.rename("events", "facts")
    successor = db.create_topic("events", payload="text")
    topic.push("x")
    assert [message.payload for message in older.subscription("mail").peek()] == ["x"]
    assert older.subscribe("log").name == "facts/log"
    assert (older.subscriptions(), successor.subscriptions()) == (["log", "mail"], [])
