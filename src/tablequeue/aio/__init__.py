"""The same verbs for asyncio, on one implementation underneath."""

from tablequeue.aio.database import THREADS, AsyncDatabase, connect
from tablequeue.aio.queue import AsyncClaim, AsyncQueue
from tablequeue.aio.topic import AsyncSubscription, AsyncTopic

__all__ = ["THREADS", "AsyncClaim", "AsyncDatabase", "AsyncQueue", "AsyncSubscription", "AsyncTopic", "connect"]
