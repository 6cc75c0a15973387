"""The receives that wait at a queue: any number of them, with one waiter and no thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Literal

from tablequeue.aio.consumer import AsyncClaim, waiter_of
from tablequeue.aio.queue import AsyncQueue
from tablequeue.aio.wait import AsyncWaiter
from tablequeue.errors import LeaseLost, TablequeueError
from tablequeue.model.pacing import backoff
from tablequeue.sqs.errors import PASSING

log = logging.getLogger("tablequeue.sqs")

LOOK_EVERY = 5.0
"""Seconds after which a receive that waits looks again: another process may have ended a visibility timeout."""


@dataclass(eq=False, slots=True)
class Waiting:
    """A receive that waits: how many messages it takes, under which lease, until when."""

    n: int
    lease: float
    end: float
    claims: asyncio.Future[list[AsyncClaim]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Waiters:
    """Hands messages of one queue to the receives that wait, in their order.

    One task looks for all of them, so a push wakes one and not hundreds.
    """

    def __init__(self, queue: AsyncQueue) -> None:
        self._queue = queue
        self._waiting: list[Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self._waiter_wake: Callable[[], None] = _nothing
        self._closed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    async def receive(self, n: int, lease: float, wait: float) -> list[AsyncClaim]:
        """Claim up to `n` messages as soon as there are any; none after `wait` seconds, or after `close`.

        If the task is cancelled, the messages claimed for it are released.
        """
        claims = await claimed(self._queue, n, lease)
        if claims or wait <= 0 or self._closed.is_set():
            return claims
        waiting = Waiting(n, lease, monotonic() + wait)
        self._waiting.append(waiting)
        if self._task is None:
            self._task = asyncio.create_task(self._serve())
        try:
            await asyncio.wait((waiting.claims,), timeout=wait)
            return waiting.claims.result() if waiting.claims.done() else []
        except asyncio.CancelledError:
            if waiting.claims.done():
                give_back(self._queue, waiting.claims.result())
            raise
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            if not self._waiting and self._task is not None:
                self._task.cancel()

    async def sleep(self, seconds: float) -> None:
        """Wait without a claim, until these seconds are over or `close` is called."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)

    def wake(self) -> None:
        """Look again: a lease was changed here."""
        self._waiter_wake()

    def close(self) -> None:
        """Answer all waiting receives with no message, and let no receive wait from now on."""
        self._closed.set()
        for waiting in self._waiting:
            waiting.claims.set_result([])
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _serve(self) -> None:
        failures = 0
        try:
            with waiter_of(self._queue) as waiter:
                self._waiter_wake = waiter.wake
                while self._waiting:
                    try:
                        await self._look(waiter)
                        failures = 0
                    except PASSING as error:  # the receives go on: the database may be back before they end
                        failures += 1
                        log.warning("%s: %s", self._queue.name, error)
                        await asyncio.sleep(backoff(failures))
        except TablequeueError as error:
            for waiting in self._waiting:
                waiting.claims.set_exception(error)
            self._waiting.clear()
        finally:
            self._waiter_wake = _nothing
            self._task = asyncio.create_task(self._serve()) if self._waiting else None  # some came meanwhile

    async def _look(self, waiter: AsyncWaiter) -> None:
        """Hand messages to the first waiting receive; if there are none, wait for some."""
        head = self._waiting[0]
        claims = await claimed(self._queue, head.n, head.lease)
        if not claims:
            left = max((each.end for each in self._waiting), default=0.0) - monotonic()
            await waiter.wait(min(max(0.0, left), LOOK_EVERY))
            return
        waiter.found()
        if head in self._waiting:
            self._waiting.remove(head)
            head.claims.set_result(claims)
        else:
            give_back(self._queue, claims)


_tasks: set[asyncio.Task[None]] = set()


def give_back(queue: AsyncQueue, claims: list[AsyncClaim]) -> None:
    """Release the claims of a client that is gone; the receive does not count."""

    async def release() -> None:
        try:
            await queue.release_many(claims)
        except (LeaseLost, TablequeueError):
            return  # their leases end by themselves

    if claims:
        task = asyncio.create_task(release())
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)


async def claimed(queue: AsyncQueue, n: int, lease: float) -> list[AsyncClaim]:
    """Claim up to `n` messages; if the lease is 0, the caller ends it after it has returned them.

    In a FIFO queue: first all ready messages of one group, then of the next groups. Groups take turns.
    """
    run: Literal["open", False] = "open" if queue.definition.needs_groups else False
    claims = await queue.pop_many(n, lease=lease or 30.0, same_group=run)
    try:
        while run and claims and len(claims) < n:
            more = await queue.pop_many(n - len(claims), lease=lease or 30.0, same_group=run)
            if not more:
                break
            claims += more
    except BaseException:
        give_back(queue, claims)
        raise
    return claims


def _nothing() -> None:
    return
