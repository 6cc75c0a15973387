"""`perform` and `drain` for tests of asyncio: async handlers run in the event loop of the test.

`from tablequeue.testing import aio`, then `await aio.drain(work, database)`. The arguments are the same as without
`await`; the work on the database, and handlers that are not async, run in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tablequeue.consumer import Consumer
from tablequeue.database import Database
from tablequeue.testing.consuming import Drained, Performed, run_async
from tablequeue.testing.performing import draining, performing
from tablequeue.worker import Handler, Worker


async def perform(
    handler: Handler | Callable[[Any], Any],
    payload: Any,
    *,
    queue: Consumer | None = None,
    attempt: int = 1,
    group: str | None = None,
    key: str | None = None,
    priority: int | None = None,
    headers: Mapping[str, Any] | None = None,
) -> Performed:
    """`tablequeue.testing.perform`, in the event loop of the test."""
    return await run_async(lambda: performing(handler, payload, queue, attempt, group, key, priority, headers))


async def drain(work: Worker | Handler, database: Database) -> Drained:
    """`tablequeue.testing.drain`, in the event loop of the test."""
    return await run_async(lambda: draining(work, database))


__all__ = ["drain", "perform"]
