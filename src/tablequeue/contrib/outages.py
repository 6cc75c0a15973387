"""Async calls that outlast an outage of the database, for programs that an error would end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from tablequeue.aio.consumer import AsyncClaim, AsyncConsumer
from tablequeue.errors import TRANSIENT
from tablequeue.model.pacing import backoff

logger = logging.getLogger("tablequeue.contrib")

T = TypeVar("T")


async def lasting(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call. After a transient error the call is made again, until it succeeds."""
    failures = 0
    while True:
        try:
            return await call()
        except TRANSIENT as error:
            failures += 1
            await _pause(failures, error)


async def consuming(
    queue: AsyncConsumer[Any], extend: Callable[[], Awaitable[object]] | None = None
) -> AsyncGenerator[AsyncClaim, None]:
    """Iterate over messages as they become ready, also after an outage. Close it, as by `contextlib.aclosing`.

    extend   extends the leases that this process holds. It is called after an outage, before anything is claimed: a
             running message must not be claimed again.
    """
    failures = 0
    while True:
        try:
            if failures and extend is not None:
                await extend()
            found: Any = queue.consume()  # one by one: nothing extends the lease of a message that is not handed over
            async with aclosing(found) as messages:
                async for message in messages:
                    failures = 0
                    yield message
        except TRANSIENT as error:
            failures += 1
            await _pause(failures, error)


async def _pause(failures: int, error: Exception) -> None:
    pause = backoff(failures)
    logger.warning("%s Trying again in %.1f s.", error, pause)
    await asyncio.sleep(pause)
