"""Programs at the front doors whose database is away, also for longer than their leases."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dramatiq
import pytest
from botocore.exceptions import ClientError
from kombu import Connection, Queue
from taskiq.receiver import Receiver

import tablequeue
import tablequeue.contrib.dramatiq as of_dramatiq
import tablequeue.contrib.kombu
import tablequeue.contrib.taskiq.broker as of_taskiq
from tablequeue import aio
from tablequeue.contrib import outages
from tablequeue.contrib.kombu import store
from tablequeue.contrib.outages import consuming
from tablequeue.contrib.taskiq import ResultBackend
from tablequeue.model import pacing
from tablequeue.sqs import app
from tests.contrib.kombu.checks import bodies, consumer, drain, publish
from tests.contrib.urls import url_of
from tests.servers import Place, Server
from tests.sqs.support import client, serving
from tests.test_crashes import own_kind, own_place, own_server  # noqa: F401  (fixtures)
from tests.worker.support import PATIENCE, until

LEASE = 0.5
"""Seconds: less than a server needs to start."""


@pytest.fixture
def url(own_place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:  # noqa: F811
    monkeypatch.setattr(pacing, "BACKOFF", (0.01, 0.1))
    with url_of(own_place) as url:
        yield url


def away(server: Server, until_noticed: Callable[[], object] | None = None) -> None:
    """Kill the server, and start it again when somebody has noticed."""
    server.kill()
    try:
        if until_noticed is not None:
            until(until_noticed, "it is noticed that the server is away")
    finally:
        server.start()


def runs_in_dramatiq(url: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often an actor began that runs while the database is away; another one has run meanwhile."""
    monkeypatch.setattr(dramatiq.worker, "CONSUMER_RESTART_DELAY_SECS", 0.01)
    monkeypatch.setattr(dramatiq.worker, "POST_PROCESS_MESSAGE_RETRY_DELAY_SECS", 0.01)
    broker = of_dramatiq.Broker(url, lease=LEASE)
    began, done, go, other = [], [], threading.Event(), threading.Event()
    errors: list[object] = []

    def act() -> None:
        began.append(1)
        assert go.wait(PATIENCE)
        done.append(1)

    slow = dramatiq.actor(act, actor_name="slow", broker=broker, max_retries=0)
    quick = dramatiq.actor(other.set, actor_name="quick", broker=broker, max_retries=0)
    consume = broker.consume

    def consumed(*args: Any, **options: Any) -> Any:
        errors.append(args)  # dramatiq makes another consumer after an error
        return consume(*args, **options)

    broker.consume = consumed  # type: ignore[method-assign]
    worker = dramatiq.Worker(broker, worker_timeout=20, worker_threads=2)
    worker.start()
    try:
        slow.send()
        until(lambda: began, "the actor has begun")
        away(server, lambda: len(errors) > 2)
        until(lambda: sent(quick), "the database is back")
        until(lambda: other.is_set() or len(began) > 1, "the other one runs, or the fault shows")
        if len(began) > 1:
            return len(began)  # both threads may be in the one actor: none is left for the other
        queue = broker.queue("default")
        if of_dramatiq.Work.adopts is ADOPTS and of_dramatiq.Consumer._extend is EXTEND:
            # Its lease ends again and again, if nobody extends it.
            first = queue.peek(state="in_progress")[0].lease_until
            until(lambda: queue.peek(state="in_progress")[0].lease_until != first, "its lease is extended")
        else:
            until(lambda: len(began) > 1, "the fault shows")
            return len(began)
        go.set()
        until(lambda: len(done) == len(began) and not queue.stats().in_progress, "all have ended")
        return len(began)
    finally:
        go.set()
        worker.stop()
        broker.close()


ADOPTS, EXTEND = of_dramatiq.Work.adopts, of_dramatiq.Consumer._extend


def sent(actor: Any) -> bool:
    try:
        actor.send()
    except dramatiq.errors.ConnectionClosed:
        return False
    return True


def test_an_actor_of_dramatiq_runs_once(
    own_server: Server,  # noqa: F811
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert runs_in_dramatiq(url, own_server, monkeypatch) == 1
    with tablequeue.connect(url) as db:
        assert db.queue("default").stats().finished == 2


def test_a_mutant_of_dramatiq_that_forgets_what_runs_is_caught(
    own_server: Server,  # noqa: F811
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_dramatiq.Consumer, "_extend", lambda self: None)
    monkeypatch.setattr(of_dramatiq.Work, "adopts", lambda self, claim: False)
    assert runs_in_dramatiq(url, own_server, monkeypatch) > 1


async def runs_in_taskiq(url: str, server: Server) -> tuple[int, int]:
    """Return how often a task began and ended that runs while the database is away, until another one has run."""
    broker = of_taskiq.Broker(url, lease=LEASE).with_result_backend(ResultBackend(url))
    await broker.startup()
    began, ended, go, other = [], [], asyncio.Event(), asyncio.Event()

    @broker.task
    async def slow() -> int:
        began.append(1)
        await go.wait()
        ended.append(1)
        return 7

    @broker.task
    async def quick() -> None:
        other.set()

    finish = asyncio.Event()
    working = asyncio.create_task(Receiver(broker, run_startup=False, max_async_tasks=10).listen(finish))
    try:
        kicked = await slow.kiq()
        async with asyncio.timeout(PATIENCE):
            while not began:
                await asyncio.sleep(0.01)
            server.kill()
            try:
                go.set()  # it ends, and is acknowledged, without the database
                while not ended:
                    await asyncio.sleep(0.01)
            finally:
                await asyncio.to_thread(server.start)
            await outages.lasting(quick.kiq)
            ran = asyncio.create_task(other.wait())
            await asyncio.wait((ran, working), return_when=asyncio.FIRST_COMPLETED)
            assert other.is_set(), "the receiver has ended"
            assert (await kicked.wait_result(check_interval=0.01)).return_value == 7
            while (await broker._queue.stats()).in_progress:
                await asyncio.sleep(0.01)
        return len(began), len(ended)
    finally:
        finish.set()
        await asyncio.gather(working, return_exceptions=True)
        await broker.shutdown()


def test_a_task_of_taskiq_runs_once_and_its_result_is_kept(own_server: Server, url: str) -> None:  # noqa: F811
    assert asyncio.run(runs_in_taskiq(url, own_server)) == (1, 1)
    with tablequeue.connect(url) as db:
        assert db.queue("taskiq").stats().finished == 2


def test_a_mutant_of_taskiq_that_ends_with_an_outage_is_caught(
    own_server: Server,  # noqa: F811
    url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(of_taskiq, "consuming", lambda queue, extend: queue.consume())
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        asyncio.run(runs_in_taskiq(url, own_server))
    assert isinstance(caught.value, (AssertionError, tablequeue.errors.TablequeueError, TimeoutError))


def test_a_consumer_goes_on_and_extends_before_it_claims(own_server: Server, url: str) -> None:  # noqa: F811
    async def main() -> None:
        async with await aio.connect(url) as db:
            queue = await db.create_queue("work", lease=LEASE)
            await queue.push(1)
            calls: list[str] = []

            async def extend() -> None:
                await queue.extend_many([first])
                calls.append("extended")

            found = consuming(queue, extend)
            first = await anext(found)
            waiting = asyncio.create_task(anext(found))
            await asyncio.to_thread(away, own_server)
            await outages.lasting(lambda: queue.push(2))
            async with asyncio.timeout(PATIENCE):
                second = await waiting
            assert (second.payload, second.attempt) == (2, 1)
            assert calls
            await found.aclose()
            await first.complete()
            await second.complete()

    asyncio.run(main())


def test_a_consumer_of_kombu_goes_on(own_server: Server, url: str) -> None:  # noqa: F811
    queue = Queue("work")
    with Connection(f"tablequeue+{url}", transport_options={"lease": 5}) as connection:
        publish(connection, 1, queue)
        publish(connection, 2, queue)
        with consumer(connection, queue, prefetch_count=1) as got:
            drain(connection, lambda: len(got) == 1)
            own_server.kill()
            try:
                got[0].ack()  # and its completion waits
                while not connection.transport._failures:
                    with pytest.raises(TimeoutError):
                        connection.drain_events(timeout=0.01)
            finally:
                own_server.start()
            drain(connection, lambda: len(got) == 2)
            got[1].ack()
        assert bodies(got) == [1, 2]
        assert not any(message.delivery_info["redelivered"] for message in got)
        connection.transport.holdings.close()
        opened = connection.transport.store
        assert (opened.db.queue("work").stats().in_progress, opened.size("work")) == (0, 0)
    store._stores.clear()


def test_a_long_poll_goes_on_and_other_requests_may_be_tried_again(own_server: Server, url: str) -> None:  # noqa: F811
    db = tablequeue.connect(url)
    served = app(db)
    with serving(served) as endpoint, ThreadPoolExecutor(1) as threads:
        sqs = client(endpoint)
        place = sqs.create_queue(QueueName="work")["QueueUrl"]
        polling = threads.submit(client(endpoint).receive_message, QueueUrl=place, WaitTimeSeconds=20)
        until(lambda: any(hosted.waiters for hosted in served.endpoint.queues.all()), "the receive waits")
        own_server.kill()
        try:
            with pytest.raises(ClientError) as caught:
                sqs.send_message(QueueUrl=place, MessageBody="lost")
            assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
            assert caught.value.response["Error"]["Code"] == "ServiceUnavailable"
            assert not polling.done()
        finally:
            own_server.start()
        client(endpoint, attempts=10).send_message(QueueUrl=place, MessageBody="sent")
        (message,) = polling.result(PATIENCE)["Messages"]
        assert message["Body"] == "sent"
    db.close()
