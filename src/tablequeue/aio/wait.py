"""Waiting for messages in asyncio: queries are calls in threads, sleeping is done by the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import Self

from tablequeue.aio.threads import Threads
from tablequeue.consumer import Consumer
from tablequeue.ext import waiter_of
from tablequeue.verbs.wait import INFINITE


class AsyncWaiter:
    """`Waiter` for asyncio: it occupies no thread while it sleeps.

    Leaving it does not await anything. So no cancellation can come between a pop that found a message and the return
    of that message.
    """

    def __init__(self, queue: Consumer, threads: Threads) -> None:
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._waiter = waiter_of(queue, on_push=self._wake)
        self._leaving: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._threads.start(self._waiter.leave)

    def found(self) -> None:
        if self._waiter.is_busy():
            self._leaving = self._threads.start(self._waiter.leave)

    async def wait(self, limit: float) -> None:
        """After a pop that found nothing: wait until another pop may find something, for up to `limit` seconds."""
        end = monotonic() + limit if limit < INFINITE else INFINITE
        if self._leaving is not None:
            await asyncio.wrap_future(self._leaving)  # or it could leave after it has entered again
            self._leaving = None
        while (pause := await self._threads.run(partial(self._waiter.pause, end))) is not None:
            try:
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            except TimeoutError:
                if self._waiter.looks_miss:
                    return
                continue
            self._woken.clear()
            if self._waiter.pops_at_once:
                await asyncio.sleep(self._waiter.back_off(end))
                return

    def wake(self) -> None:
        """End the pause of a task that waits: it looks again. Call it in the thread of its event loop."""
        self._woken.set()

    def _wake(self) -> None:
        wake(self._loop, self._woken)


def wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    """Set the event of a task, from another thread."""
    try:
        loop.call_soon_threadsafe(woken.set)
    except RuntimeError:
        return  # the loop has ended, so no task waits in it
