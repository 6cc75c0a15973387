"""The async verbs of topics and subscriptions do what their namesakes do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from tablequeue import Database, Lag, NewMessage, aio
from tablequeue.aio import AsyncDatabase, AsyncQueue, AsyncSubscription, AsyncTopic
from tablequeue.errors import LeaseLost, QueueDiffers, QueueNotFound, SeekRefused
from tests.async_support import claimed, in_loop, refuses
from tests.servers import Kind, Place

pytestmark = pytest.mark.quick


@asynccontextmanager
async def reached(place: Place, url: str | None = None) -> AsyncIterator[AsyncDatabase]:
    async with await aio.connect(url or place.url, schema=place.schema, threads=3) as database:
        yield database


@in_loop
async def test_every_verb(db: Database, place: Place) -> None:
    async with reached(place) as database:
        events = await database.create_topic("events", payload="text", groups=False)
        assert isinstance(events, AsyncTopic)
        assert (events.name, events.definition.payload, repr(events)) == ("events", "text", "<AsyncTopic events>")
        mail = await events.subscribe("mail", max_attempts=2)
        ids = [await events.push("a", headers={"n": 1}), *await events.push_many([NewMessage("b", group="g"), "c"])]
        audit = await events.subscribe("audit", start="end")
        assert (await events.subscriptions(), await database.topics()) == (["audit", "mail"], ["events"])
        assert (await database.queues(), db.topics()) == ([], ["events"])
        assert await audit.lag() == Lag(0, None)
        assert (await mail.lag()).messages == 3
        first = await claimed(mail)
        assert (first.id, first.payload, first.headers) == (ids[0], "a", {"n": 1})
        rest = await mail.pop_many(10, completing=[first])
        assert [(claim.payload, claim.group) for claim in rest] == [("b", "g"), ("c", None)]
        await rest[0].extend(timedelta(minutes=2))
        assert await rest[0].fail("why", retry_in=0) == "ready"
        await refuses(SeekRefused, mail.seek, "beginning")
        await mail.complete_many(rest[1:])
        again = await claimed(mail)
        assert (again.payload, again.attempt) == ("b", 2)
        assert await again.fail("why") == "dead"
        assert [message.id for message in await mail.dead()] == [ids[1]]
        await mail.seek("end")
        assert await mail.pop() is None
        await mail.seek("beginning")
        assert [claim.payload async for claim in mail.consume(wait=0, prefetch=5)] == ["a", "b", "c"]
        await (await events.subscription("audit")).drop()
        assert await events.subscriptions() == ["mail"]
        await events.drop()
        assert await database.topics() == []


@in_loop
async def test_a_queue_of_that_name_is_a_subscription(db: Database, place: Place) -> None:
    topic = db.create_topic("events")
    topic.subscribe("mail")
    db.create_queue("plain")
    async with reached(place) as database:
        mail = await database.subscription("events/mail")
        assert isinstance(mail, AsyncSubscription)
        assert mail.definition == topic.subscription("mail").definition
        assert type(await database.queue("plain")) is AsyncQueue
        assert isinstance(await (await database.topic("events")).subscription("mail"), AsyncSubscription)
        await refuses(QueueNotFound, database.topic, "plain")
        await refuses(QueueNotFound, database.queue, "events")
        await refuses(QueueNotFound, database.queue, "events/mail")
        assert type(await database.consumer("plain")) is AsyncQueue
        assert type(await database.consumer("events/mail")) is AsyncSubscription
        await refuses(QueueDiffers, (await database.topic("events")).subscribe, "mail", lease=5)
        assert not hasattr(mail, "push")


@in_loop
async def test_a_callers_transaction(db: Database, place: Place, kind: Kind) -> None:
    """A push and a completion are parts of it. A claim is not: it would hold up other consumers."""
    driver = next(iter(kind.engine_class.async_drivers))
    url = place.sa_engine().url.set(drivername=f"{kind.name}+{driver}")
    engine = create_async_engine(url)
    async with reached(place) as database:
        events = await database.create_topic("events")
        mail = await events.subscribe("mail")
        async with engine.connect() as connection:
            await events.push(1, connection=connection)
            await events.push_many([2, 3], connection=connection)
            await connection.rollback()
        assert await mail.pop() is None
        async with engine.connect() as connection:
            await events.push(4, connection=connection)
            await connection.commit()
        claim = await claimed(mail)
        async with engine.connect() as connection:
            await claim.complete(connection=connection)
            await connection.rollback()
            await mail.complete_many([claim], connection=connection)
            await connection.commit()
        await refuses(LeaseLost, claim.complete)
    await engine.dispose()
