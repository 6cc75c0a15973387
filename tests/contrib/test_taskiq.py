"""The broker for taskiq, with a receiver of taskiq; tests/contrib/brokers.py runs taskiq's own tests with it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from taskiq import InMemoryBroker
from taskiq.exceptions import SendTaskError
from taskiq.receiver import Receiver

import tablequeue
from tablequeue.contrib.taskiq import Broker
from tablequeue.errors import BadInput


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'work.db'}"


def test_a_receiver_runs_what_was_kicked(tmp_path: Path) -> None:
    async def main() -> None:
        broker = Broker(url_in(tmp_path), order="priority").with_result_backend(InMemoryBroker().result_backend)
        await broker.startup()

        @broker.task
        async def double(n: int) -> int:
            return 2 * n

        finish = asyncio.Event()
        receiver = Receiver(broker, run_startup=False, max_async_tasks=4)
        listening = asyncio.create_task(receiver.listen(finish))
        tasks = [await double.kicker().with_labels(priority=n, delay=0.01 * (n % 2)).kiq(n) for n in range(10)]
        results = [await task.wait_result(check_interval=0.01, timeout=60) for task in tasks]
        assert [result.return_value for result in results] == [2 * n for n in range(10)]
        finish.set()
        await listening
        await broker.shutdown()

    asyncio.run(main())
    with tablequeue.connect(url_in(tmp_path)) as db:
        queue = db.queue("taskiq")
        assert (queue.stats().finished, queue.stats().in_progress) == (10, 0)
        assert {message.priority for message in queue.history()} == set(range(10))


def test_a_queue_that_was_dropped_is_made_again(tmp_path: Path) -> None:
    async def main() -> None:
        broker = Broker(url_in(tmp_path)).with_result_backend(InMemoryBroker().result_backend)
        await broker.startup()

        @broker.task
        async def double(n: int) -> int:
            return 2 * n

        finish = asyncio.Event()
        receiver = Receiver(broker, run_startup=False)
        listening = asyncio.create_task(receiver.listen(finish))
        for n in range(3):
            task = await double.kiq(n)
            assert (await task.wait_result(check_interval=0.01, timeout=60)).return_value == 2 * n
            with tablequeue.connect(url_in(tmp_path)) as db:
                db.queue("taskiq").drop()
        finish.set()
        await listening
        await broker.shutdown()

    asyncio.run(main())


def test_a_delayed_message_waits_in_the_table(tmp_path: Path) -> None:
    async def main() -> None:
        broker = Broker(url_in(tmp_path))
        await broker.startup()

        @broker.task(delay=60)
        async def later() -> None: ...

        await later.kiq()
        await broker.shutdown()

    asyncio.run(main())
    with tablequeue.connect(url_in(tmp_path)) as db:
        assert db.queue("taskiq").stats().scheduled == 1


async def one_of_three(folder: Path, finish: str) -> Any:
    """Kick three, listen to one of them, and end the broker."""
    broker = Broker(url_in(folder))
    await broker.startup()

    @broker.task
    async def act() -> None: ...

    for _ in range(3):
        await act.kiq()
    listening = broker.listen()
    message = await anext(listening)
    if finish == "ack":
        await message.ack()
    if finish == "killed":  # nothing is released
        broker._held.clear()
        broker._extending.cancel()
    else:
        await listening.aclose()
    await broker.shutdown()
    return message


@pytest.mark.parametrize(("finish", "expected"), [("ack", (2, 0, 1)), ("shutdown", (3, 0, 0)), ("killed", (2, 1, 0))])
def test_what_was_not_acknowledged_is_delivered_again(
    tmp_path: Path, finish: str, expected: tuple[int, int, int]
) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(one_of_three(tmp_path, finish))
    with tablequeue.connect(url_in(tmp_path)) as db:
        queue = db.queue("taskiq")
        stats = queue.stats()
        assert (stats.ready, stats.in_progress, stats.finished) == expected
        left = queue.pop_many(10, now=datetime.now(UTC) + timedelta(hours=1))
        assert len(left) == stats.ready + stats.in_progress
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def test_a_broker_that_was_not_started_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        broker = Broker(url_in(tmp_path))

        @broker.task
        async def act() -> None: ...

        await act.kiq()

    with pytest.raises(SendTaskError) as caught:
        asyncio.run(main())
    assert isinstance(caught.value.__cause__, BadInput)


def test_leases_are_extended_until_the_acknowledgement(tmp_path: Path) -> None:
    async def main() -> None:
        broker = Broker(url_in(tmp_path), lease=0.3)
        await broker.startup()

        @broker.task
        async def act() -> None: ...

        await act.kiq()
        listening = broker.listen()
        await anext(listening)
        queue = broker._queue
        first = (await queue.peek(state="in_progress"))[0].lease_until
        while (await queue.peek(state="in_progress"))[0].lease_until == first:
            await asyncio.sleep(0.01)
        await listening.aclose()
        await broker.shutdown()

    asyncio.run(main())
