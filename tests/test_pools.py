"""The pool of a caller's Engine: no call of ours waits for a connection of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue import Claim, Database
from tablequeue.engines.connection import RawConnection
from tablequeue.engines.pool import Pool
from tablequeue.engines.runner import Runner
from tablequeue.worker import Worker
from tablequeue.worker.schedule import Schedule, push_due
from tests.servers import Place
from tests.support import claimed, counts
from tests.worker.support import PATIENCE, until, working

pytestmark = pytest.mark.quick

NOON = datetime(2040, 6, 1, 12, tzinfo=UTC)


@pytest.fixture
def small(place: Place) -> Iterator[sa.Engine]:
    """An Engine with one connection. Who wants another one is refused at once."""
    sa_engine = sa.create_engine(place.url, pool_size=1, max_overflow=0, pool_timeout=0)
    yield sa_engine
    sa_engine.dispose()


class Taken(deque[RawConnection]):
    """Idle connections of which another thread takes the last one right after a look."""

    def __bool__(self) -> bool:
        return True


def test_two_threads_close_a_database(db: Database) -> None:
    db.create_queue("work").push("a")
    pool = db._runner.pool
    pool._idle = Taken(pool._idle)
    db.close()
    assert not [*pool._idle]
    assert not pool._all


def check_verbs(database: Database) -> None:
    """The verbs work while the only connection of the pool is in use, by themselves and in its transaction."""
    with database.engine.connect() as held:
        queue = database.create_queue("work", payload="text", groups="fair", concurrency=4, unique_for=3600)
        queue.push_many([*"abc"])
        claimed(queue).complete()
        assert [message.payload for message in queue.peek()] == ["b", "c"]
        held.exec_driver_sql("select 1")
        held.rollback()
        with held.begin():
            queue.push("d", key="d", connection=held)
            claim = queue.pop(connection=held)
            assert claim
            claim.complete(connection=held)
        hourly = Schedule("hourly", "work", "0 * * * *", "e")
        push_due(database, hourly, NOON)
        push_due(database, hourly, NOON + timedelta(hours=1))
        assert counts(queue) == {"finished": 2, "ready": 3}


def test_verbs_while_the_pool_is_exhausted(place: Place, small: sa.Engine) -> None:
    with tablequeue.connect(small, schema=place.schema) as database:
        check_verbs(database)


def test_a_worker_while_its_handlers_have_the_pool(place: Place, small: sa.Engine) -> None:
    database = tablequeue.connect(small, schema=place.schema)
    queue = database.create_queue("work", payload="text", lease=1)
    begun, go = Event(), Event()

    def handle(message: Claim) -> None:
        with database.engine.connect() as session:
            session.exec_driver_sql("select 1")
            database.close()  # as when the server has ended the idle connections: the worker has to make new ones
            begun.set()
            assert go.wait(PATIENCE)

    worker = Worker(maximum=1)
    worker.handler("work")(handle)
    with working(worker, database):
        queue.push("a")
        assert begun.wait(PATIENCE)
        first = lease_of(database)
        try:
            until(lambda: lease_of(database) > first, "the lease is extended")
        finally:
            go.set()
        until(lambda: counts(queue) == {"finished": 1}, "it is completed")
    assert [message.attempts for message in queue.history()] == [1]
    database.close()


def lease_of(database: Database) -> datetime:
    (message,) = database.queue("work").peek(state="in_progress")
    assert message.lease_until
    return message.lease_until


class FromThePool(Pool):
    """Takes connections from the caller's pool."""

    def _made(self) -> RawConnection:
        proxy = self._sa_engine.raw_connection()
        raw = self._engine.adopt(proxy.dbapi_connection)
        proxy.detach()
        self._all.append(raw)
        return raw


def test_the_check_notices_calls_that_wait_in_the_pool(place: Place, small: sa.Engine) -> None:
    runner = Runner(small, place.open()._runner.engine)
    runner.pool = FromThePool(small, runner.engine)
    database = Database(small, runner, None)
    with database, pytest.raises(sa.exc.TimeoutError):
        check_verbs(database)


def test_connections_are_made_as_those_of_the_pool(place: Place) -> None:
    """With the arguments and the statements that a listener adds to a connection, also one that came later."""
    place.open().create_queue("work")
    told: list[str] = []
    sa_engine = sa.create_engine(place.url)

    @sa.event.listens_for(sa_engine, "do_connect")
    def arguments(*given: Any) -> None:
        told.append("arguments")

    with tablequeue.connect(sa_engine, schema=place.schema) as database:
        assert told == ["arguments"]

        @sa.event.listens_for(sa_engine, "connect")
        def statements(*given: Any) -> None:
            told.append("statements")

        database.close()
        database.queue("work").push("a")
        assert told == ["arguments", "arguments", "statements"]
    sa_engine.dispose()
