"""Waiting for messages in asyncio: the looks are calls in threads, the sleep is the event loop's."""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import Self

from tablequeue.operations.wait import INFINITE
from tablequeue.queue import Queue
from tablequeue.threads import Threads


class AsyncWaiter:
    """`Waiter` for asyncio: no thread is held while it sleeps."""

    def __init__(self, queue: Queue, threads: Threads) -> None:
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._waiter = queue.waiter(ring=self._ring)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._threads.run_to_end(self._waiter.leave)

    def found(self) -> None:
        self._waiter.found()

    async def wait(self, limit: float) -> None:
        """After a pop that has found nothing: until another one may find something, or for `limit` seconds."""
        end = monotonic() + limit if limit < INFINITE else INFINITE
        while (pause := await self._threads.run(partial(self._waiter.pause, end))) is not None:
            try:
                async with asyncio.timeout(pause):
                    await self._rung.wait()
            except TimeoutError:
                continue
            self._rung.clear()
            if self._waiter.pops_at_once:
                await asyncio.sleep(self._waiter.linger(end))
                return

    def _ring(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._rung.set)
        except RuntimeError:
            return  # the loop has ended, and nobody waits in it
