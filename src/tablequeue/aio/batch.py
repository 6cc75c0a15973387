"""A batch for asyncio."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from tablequeue.aio.threads import Threads
from tablequeue.model.batch import BatchProgress
from tablequeue.verbs.batches import Batch


class AsyncBatch:
    """`Batch` for asyncio. Made by `AsyncDatabase.batch`."""

    def __init__(self, own: Batch, threads: Threads) -> None:
        self._own = own
        self._threads = threads

    def __repr__(self) -> str:
        return f"<Async{repr(self._own)[1:]}"

    @property
    def id(self) -> int:
        return self._own.id

    @property
    def queue(self) -> str:
        """The name of the queue of its messages."""
        return self._own.queue

    async def progress(self) -> BatchProgress:
        """Return the progress of the batch; see `Batch.progress`."""
        return await self._threads.run(self._own.progress)

    async def results(self, n: int = 1000, *, after: int = 0) -> dict[int, Any]:
        """Return the results of messages of the batch; see `Batch.results`."""
        return await self._threads.run(partial(self._own.results, n, after=after))

    async def cancel(self, *, now: datetime | None = None) -> int:
        """Cancel the messages; see `Batch.cancel`."""
        return await self._threads.run(partial(self._own.cancel, now=now))


__all__ = ["AsyncBatch"]
