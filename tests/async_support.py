"""Shared parts of the async tests: a test is a coroutine, and a test that hangs fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue.aio import AsyncClaim, AsyncConsumer
from tests.servers import KINDS

# Seconds after which a test fails that still waits for an event.
PATIENCE = 60


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **fixtures), 4 * PATIENCE))

    return run


async def refuses(kind: type[Exception], call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the error that the call raises. It must have this class, a cause and a remedy."""
    with pytest.raises(kind) as caught:
        await call(*args, **options)
    error: Any = caught.value
    assert error.cause.strip()
    assert error.remedy.strip()
    return error


async def claimed(queue: AsyncConsumer[Any], **options: Any) -> AsyncClaim:
    """Pop the next message, which must exist."""
    claim = await queue.pop(**options)
    assert claim is not None, "a message must be ready"
    return claim


def lock(connection: sa.Connection, table: str) -> None:
    """Make every writer of the table wait for the end of the connection's transaction."""
    (kind,) = (kind for kind in KINDS if kind.name == connection.dialect.name)
    connection.exec_driver_sql(kind.lock.format(table))
