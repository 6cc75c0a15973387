"""Callers' connections in autocommit: refused without a transaction, accepted if one was begun."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from tablequeue import Claim, Database, NewMessage, Queue, aio
from tablequeue.errors import BadInput, DuplicateKey
from tests.servers import Kind, Place
from tests.support import claimed, counts, refuses

VERBS: dict[str, Callable[[Queue, Claim, Any], object]] = {
    "push": lambda queue, claim, connection: queue.push(1, connection=connection),
    "push_many": lambda queue, claim, connection: queue.push_many([1, NewMessage(2, key="k")], connection=connection),
    "pop": lambda queue, claim, connection: queue.pop(connection=connection),
    "take": lambda queue, claim, connection: queue.take(connection),
    "complete": lambda queue, claim, connection: claim.complete(connection=connection),
    "fail": lambda queue, claim, connection: claim.fail("no", connection=connection),
}


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work")


@pytest.mark.parametrize("verb", VERBS)
def test_without_a_transaction_it_is_refused(place: Place, queue: Queue, verb: str) -> None:
    queue.push_many([0, 0])
    claim = claimed(queue)
    engine = sa.create_engine(place.url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        assert "autocommit" in refuses(BadInput, VERBS[verb], queue, claim, connection).cause
    assert counts(queue) == {"ready": 1, "in_progress": 1}
    queue.push(1)  # nothing is locked


@pytest.fixture
def begun(place: Place, kind: Kind) -> Iterator[Any]:
    """A driver's connection in autocommit, on which SQL has begun a transaction."""
    engine = sa.create_engine(place.url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    proxy = engine.raw_connection()
    raw: Any = proxy.dbapi_connection
    raw.cursor().execute("begin")
    yield raw
    proxy.close()


def test_in_a_transaction_it_is_the_callers_to_commit(queue: Queue, begun: Any) -> None:
    """Also for a large push and a large claim, which otherwise use transactions of their own."""
    queue.push_many(range(300))
    queue.push_many(range(2500), connection=begun)
    queue.push_many([NewMessage(n, key=f"k{n}") for n in range(10)], connection=begun)
    assert len(queue.pop_many(250, connection=begun)) == 250
    begun.cursor().execute("rollback")
    assert counts(queue) == {"ready": 300}


def test_half_a_batch_stays_impossible(queue: Queue, begun: Any) -> None:
    queue.push(0, key="live")
    batch = [*(NewMessage(n, key=f"k{n}") for n in range(2500)), NewMessage(0, key="live")]
    refuses(DuplicateKey, queue.push_many, batch, connection=begun)
    begun.cursor().execute("commit")
    assert counts(queue) == {"ready": 1}


def test_an_async_connection(place: Place, queue: Queue, kind: Kind) -> None:
    async def run(url: str) -> None:
        engine = create_async_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        async with await aio.connect(place.url, schema=place.schema) as database, engine.connect() as connection:
            theirs = await database.queue("work")
            with pytest.raises(BadInput, match="autocommit"):
                await theirs.push(1, connection=connection)

    for driver in kind.engine_class.async_drivers:
        asyncio.run(
            run(
                str(
                    sa.make_url(place.url).set(drivername=f"{kind.name}+{driver}").render_as_string(hide_password=False)
                )
            )
        )
    assert counts(queue) == {}
