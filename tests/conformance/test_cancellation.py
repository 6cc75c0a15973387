"""A consuming task is cancelled at each of its awaits in turn, at the worst moment: no message is stranded or lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from tablequeue import Database, Queue, aio
from tablequeue.aio import AsyncQueue
from tablequeue.aio.wait import AsyncWaiter
from tests.async_support import PATIENCE
from tests.servers import Place
from tests.support import counts

pytestmark = pytest.mark.quick

# Enough for every await of the longest task below.
AWAITS = 40


class CancelledAt:
    """Cancel the task after its `number`th await is done and before it continues."""

    def __init__(self, task: Coroutine[Any, Any, Any], number: int) -> None:
        self._task = task
        self._number = number
        self.was_cancelled = False

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        awaits = 0
        while True:
            try:
                awaited = self._task.send(None) if error is None else self._task.throw(error)
            except StopIteration as end:
                return end.value
            try:
                yield awaited
                error = None
            except BaseException as raised:
                error = raised
            awaits += 1
            if awaits == self._number:
                self.was_cancelled = True
                error = asyncio.CancelledError()


async def receive(work: AsyncQueue, handled: list[int]) -> None:
    async with work.receive(wait=PATIENCE) as message:
        await asyncio.sleep(0)
        handled.append(message.id)


async def pop(work: AsyncQueue, handled: list[int]) -> None:
    message = await work.pop()
    if message is None:
        return
    try:
        handled.append(message.id)
        await message.complete()
    except asyncio.CancelledError:
        return  # the message is completed nevertheless


async def consume(work: AsyncQueue, handled: list[int]) -> None:
    async with aclosing(work.consume(wait=PATIENCE, prefetch=2)) as messages:  # type: ignore[type-var]
        async for message in messages:
            handled.append(message.id)
            await message.complete()
            return


TASKS: dict[str, Callable[[AsyncQueue, list[int]], Coroutine[Any, Any, None]]] = {
    "receive": receive,
    "pop": pop,
    "consume": consume,
}


@pytest.fixture
def design() -> str:
    """Cancelling does not depend on the order."""
    return "fifo"


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[AsyncQueue]:
    async with await aio.connect(place.url, schema=place.schema) as database:
        yield await database.queue("work")


async def cancel_each(place: Place, queue: Queue, name: str, waits: bool, check: Callable[[list[int]], None]) -> int:
    """Cancel the task at each of its awaits in turn. Return the number of awaits."""
    for number in range(1, AWAITS):
        handled: list[int] = []
        async with opened(place) as work:
            if not waits:
                await asyncio.to_thread(queue.push_many, ["x", "x"])
            task = CancelledAt(TASKS[name](work, handled), number)
            running = asyncio.ensure_future(_outcome(task))
            if waits:
                await asyncio.sleep(0)
                await asyncio.to_thread(queue.push_many, ["x", "x"])
            await asyncio.wait_for(running, PATIENCE)
        check(handled)
        if not task.was_cancelled:
            return number - 1
    raise AssertionError("it has more awaits than that")


async def _outcome(task: Awaitable[None]) -> None:
    try:
        await task
    except asyncio.CancelledError:
        return


@pytest.mark.parametrize("waits", [False, True], ids=["there is one", "it waits for one"])
@pytest.mark.parametrize("name", TASKS)
def test_nothing_is_stranded(place: Place, queue: Queue, name: str, waits: bool) -> None:
    def check(handled: list[int]) -> None:
        states = counts(queue)
        assert set(states) <= {"ready", "finished"}, "each is anybody's, or done"
        assert states.get("finished", 0) == len(handled)
        queue.purge()
        queue.purge_history(0)

    assert asyncio.run(cancel_each(place, queue, name, waits, check)) >= 1


@pytest.mark.parametrize("waits", [False, True], ids=["there is one", "it waits for one"])
def test_nothing_is_lost_without_a_word(db: Database, place: Place, waits: bool) -> None:
    """At most once: the message of a cancelled task is recorded as lost, with the reason."""
    queue = db.create_queue("work", payload="text", delivery="at_most_once")

    def check(handled: list[int]) -> None:
        lost = queue.lost(older_than=0)
        assert all(message.errors for message in lost)
        assert len(lost) + counts(queue).get("ready", 0) + len(handled) >= 2
        queue.purge()
        queue.purge_history(0)

    assert asyncio.run(cancel_each(place, queue, "receive", waits, check)) > 1


def test_an_exit_that_waits_is_noticed(place: Place, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant has an await between the pop and the block, to leave the notifier."""

    async def leave_and_wait(self: AsyncQueue, *args: Any) -> Any:
        claims = await original(self, *args)
        await asyncio.sleep(0)
        return claims

    original = AsyncQueue._next
    monkeypatch.setattr(AsyncQueue, "_next", leave_and_wait)
    with pytest.raises(AssertionError):
        test_nothing_is_stranded(place, queue, "receive", False)


def test_leaving_is_over_before_one_comes_again(place: Place, queue: Queue) -> None:
    """Otherwise the next one that waits would not be notified."""
    order: list[str] = []

    async def main() -> None:
        async with opened(place) as work:
            with AsyncWaiter(queue, work._threads) as waiter:
                inner = waiter._waiter
                attend, leave = inner.pause, inner.leave
                inner.is_busy = lambda: True  # type: ignore[method-assign]
                inner.pause = lambda end: (order.append("come"), attend(end))[1]  # type: ignore[method-assign, func-returns-value]
                inner.leave = lambda: (order.append("leave"), leave())[1]  # type: ignore[method-assign, func-returns-value]
                for _ in range(20):
                    waiter.found()
                    await waiter.wait(0)

    asyncio.run(main())
    assert order[:40] == ["leave", "come"] * 20
