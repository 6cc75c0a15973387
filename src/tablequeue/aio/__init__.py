"""The same verbs for asyncio, on one implementation underneath."""

from tablequeue.aio.consumer import AsyncClaim, AsyncConsumer
from tablequeue.aio.database import THREADS, AsyncDatabase, connect
from tablequeue.aio.queue import AsyncBatch, AsyncQueue
from tablequeue.aio.topic import AsyncSubscription, AsyncTopic

__all__ = [
    "THREADS",
    "AsyncBatch",
    "AsyncClaim",
    "AsyncConsumer",
    "AsyncDatabase",
    "AsyncQueue",
    "AsyncSubscription",
    "AsyncTopic",
    "connect",
]
