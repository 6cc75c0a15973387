"""The lifespan and the dependencies for FastAPI: what a request pushes is committed with its session, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi.testclient import TestClient
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import tablequeue
from tablequeue import Database
from tablequeue.contrib import fastapi
from tablequeue.contrib.fastapi import InAsyncSession, InSession, Queues
from tablequeue.errors import BadInput, QueueNotFound
from tablequeue.worker import Worker


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'shop.db'}") as db:
        yield db
        db.engine.dispose()


def sync_application(db: Database) -> FastAPI:
    engine = db.engine
    queues = Queues(engine)

    def session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    app = FastAPI(lifespan=queues.lifespan)
    orders = Depends(queues.queue("orders", session))
    log = Depends(queues.topic("log", session))

    @app.post("/{n}")
    def post(n: int, session: Session = Depends(session), orders: InSession = orders, log: InSession = log) -> Any:
        assert orders.session is log.session is session
        ids = [orders.push(n), *orders.push_many([n, n], unique_for=None)]
        log.push({"n": n})
        if n % 2:
            raise HTTPException(409)
        session.commit()
        return ids

    return app


def async_application(db: Database) -> FastAPI:
    engine = create_async_engine(db.engine.url.set(drivername="sqlite+aiosqlite"))
    queues = Queues(engine)

    async def session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine) as session:
            yield session

    app = FastAPI(lifespan=queues.lifespan)
    orders = Depends(queues.queue("orders", session))
    log = Depends(queues.topic("log", session))

    @app.post("/{n}")
    async def post(
        n: int,
        session: AsyncSession = Depends(session),
        orders: InAsyncSession = orders,
        log: InAsyncSession = log,
    ) -> Any:
        ids = [await orders.push(n), *await orders.push_many([n, n])]
        await log.push({"n": n})
        if n % 2:
            raise HTTPException(409)
        await session.commit()
        return ids

    return app


APPLICATIONS = (sync_application, async_application)


@pytest.mark.parametrize("application", APPLICATIONS)
def test_a_push_is_committed_with_the_session_or_not_at_all(
    application: Callable[[Database], FastAPI], db: Database
) -> None:
    orders = db.create_queue("orders")
    mail = db.create_topic("log").subscribe("mail")
    app = application(db)
    for _ in range(2):  # an application may be started again
        with TestClient(app) as client:
            assert client.post("/1").status_code == 409
            assert len(client.post("/2").json()) == 3
    assert [message.payload for message in orders.peek()] == [2] * 6
    assert [message.payload for message in mail.pop_many(10)] == [{"n": 2}] * 2


@pytest.mark.parametrize("application", APPLICATIONS)
def test_a_missing_queue_prevents_the_start(application: Callable[[Database], FastAPI], db: Database) -> None:
    db.create_queue("order")
    with pytest.raises(QueueNotFound), TestClient(application(db)):
        pass


def test_after_a_start_that_failed_no_queue_is_open(db: Database) -> None:
    db.create_queue("orders")
    queues = Queues(db.engine)
    orders = queues.queue("orders", lambda: None)
    queues.queue("missing", lambda: None)
    with pytest.raises(QueueNotFound), TestClient(FastAPI(lifespan=queues.lifespan)):
        pass
    with pytest.raises(BadInput, match="lifespan"):
        orders(None)


def test_without_the_lifespan_a_request_is_refused(db: Database) -> None:
    with pytest.raises(BadInput, match="lifespan"):
        TestClient(sync_application(db)).post("/2")


def test_a_mutant_without_the_session_is_caught(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(InAsyncSession):
        async def push(self, payload: Any, **options: Any) -> Any:
            first = isinstance(payload, int)  # before the session holds SQLite's lock
            return await (self.queue.push(payload, **options) if first else super().push(payload, **options))

    monkeypatch.setattr(fastapi, "InAsyncSession", Forgetful)
    with pytest.raises(AssertionError):
        test_a_push_is_committed_with_the_session_or_not_at_all(async_application, db)


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_URL", f"sqlite:///{tmp_path / 'shop.db'}")
    from examples import shop

    with TestClient(shop.app) as client:
        assert client.post("/orders/7").status_code == 201
        assert client.post("/orders/7").status_code == 409
        assert client.get("/orders/7").json() == {"shipped": False}
        with tablequeue.connect(shop.engine) as db:
            assert db.queue("orders").stats().ready == 1
            work = Worker()
            work.handler("orders")(shop.ship)
            work.run(db, drain=True)
            assert db.queue("orders").stats().finished == 1
        assert client.get("/orders/7").json() == {"shipped": True}
        assert client.get("/orders/8").status_code == 404
    shop.engine.dispose()
