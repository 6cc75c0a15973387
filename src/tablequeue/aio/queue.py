"""A queue for asyncio: the verbs of an `AsyncConsumer`, and the verbs that push, take and move; and its batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any

from tablequeue.aio.consumer import AsyncClaim, AsyncConsumer
from tablequeue.aio.verbs import AsyncVerbs, same
from tablequeue.aio.wait import wake
from tablequeue.ext import context_of
from tablequeue.model.batch import OnDead
from tablequeue.model.connection import Connection
from tablequeue.model.message import checked_claims
from tablequeue.model.pacing import Duration
from tablequeue.model.states import LiveState
from tablequeue.queue import Queue
from tablequeue.verbs.batches import Batch, Callback, MoreOfBatch, NewBatch, OpenBatch
from tablequeue.verbs.claim import SameGroup
from tablequeue.verbs.maintain import Which
from tablequeue.verbs.move_between import Moved
from tablequeue.verbs.results import ResultWaiter


class AsyncBatch(AsyncVerbs[Batch]):
    """`Batch` for asyncio. Made by `AsyncDatabase.batch`."""

    @property
    def id(self) -> int:
        return self._own.id

    @property
    def queue(self) -> str:
        """The name of the queue of its messages."""
        return self._own.queue

    progress = same(Batch.progress)
    results = same(Batch.results)
    cancel = same(Batch.cancel)


class AsyncQueue(AsyncConsumer[Queue]):
    """`Queue` for asyncio: every verb does what its namesake there does. Made by `AsyncDatabase`.

    `AsyncConsumer` explains `connection=`, `now=`, and what a cancellation leaves.
    """

    # -- producing -------------------------------------------------------------------------------------------------

    push = same(Queue.push)
    push_many = same(Queue.push_many)  # the payloads are read in the thread

    @asynccontextmanager
    async def batch(
        self,
        *,
        then: Callback | None = None,
        failed: Callback | None = None,
        on_dead: OnDead = "wait",
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> AsyncIterator[OpenBatch]:
        """Push a batch: `async with queue.batch(...) as batch: batch.push_many(payloads)`; see `Queue.batch`.

        The verbs of the batch are not awaited: nothing is in the database until the block ends.
        """
        own = await self._threads.run(partial(NewBatch, context_of(self._own), then, failed, on_dead, now))
        yield own
        await self._call(self._threads.run, own.finish, connection=connection)

    @asynccontextmanager
    async def batch_of(
        self, message: AsyncClaim, *, connection: Connection | None = None, now: datetime | None = None
    ) -> AsyncIterator[OpenBatch]:
        """Push more messages into the batch of `message`, which is in progress; see `Queue.batch_of`."""
        (checked,) = checked_claims((message,), AsyncClaim)
        own = await self._threads.run(partial(MoreOfBatch, context_of(self._own), checked.claim, now))
        yield own
        await self._call(self._threads.run, own.finish, connection=connection)

    async def batches(self, n: int = 100, *, after: int = 0) -> list[AsyncBatch]:
        """Return the first `n` open batches with ids above `after`, by id; see `Queue.batches`."""
        found = await self._threads.run(partial(self._own.batches, n, after=after))
        return [AsyncBatch(one, self._threads) for one in found]

    # -- consuming -------------------------------------------------------------------------------------------------

    async def pop(
        self,
        *,
        lease: Duration | None = None,
        completing: AsyncClaim | None = None,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> AsyncClaim | None:
        """Claim the next message under a lease, or None if none is ready; see `Queue.pop`."""
        done = () if completing is None else (completing,)
        claims = await self._pop(1, lease, False, done, connection, now)
        return claims[0] if claims else None

    async def pop_many(
        self,
        n: int,
        *,
        lease: Duration | None = None,
        same_group: SameGroup = False,
        completing: Iterable[AsyncClaim] = (),
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> list[AsyncClaim]:
        """Claim up to `n` messages in one round trip; an empty list if none is ready. See `Queue.pop_many`."""
        return await self._pop(n, lease, same_group, completing, connection, now)

    async def pop_group(
        self, group: str, n: int = 1, *, lease: Duration | None = None, now: datetime | None = None
    ) -> list[AsyncClaim]:
        """Claim up to `n` messages of one group, in a queue with fair groups; see `Queue.pop_group`."""
        run = partial(self._threads.run_or_undo, undo=self._put_back, to_end=False)
        claims = await self._call(run, self._own.pop_group, group, n, lease=lease, now=now)
        return [AsyncClaim(self, claim) for claim in claims]

    async def take(self, connection: Connection, *, now: datetime | None = None) -> AsyncClaim | None:
        """Remove the next message in the transaction of `connection`, or None if none is ready; see `Queue.take`."""
        claims = await self.take_many(1, connection, now=now)
        return claims[0] if claims else None

    async def take_many(self, n: int, connection: Connection, *, now: datetime | None = None) -> list[AsyncClaim]:
        """Remove up to `n` messages in the transaction of `connection`, in the queue's order, as `take` does."""
        claims = await self._within(connection, self._own.take_many, n, now=now)
        return [AsyncClaim(self, claim) for claim in claims]

    async def result(self, id: int, *, wait: Duration = 0) -> Any:
        """Return the result of a message; see `Queue.result`. No thread is occupied while it waits."""
        woken = asyncio.Event()
        loop = asyncio.get_running_loop()
        waiter = ResultWaiter(context_of(self._own), id, wait, partial(wake, loop, woken))
        try:
            while (looked := await self._threads.run(waiter.look))[1] is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(looked[1]):
                        await woken.wait()
                woken.clear()
            return looked[0]
        finally:
            self._threads.start(waiter.leave)

    # -- looking ---------------------------------------------------------------------------------------------------

    lost = same(Queue.lost)

    # -- keeping ---------------------------------------------------------------------------------------------------

    async def move(
        self, which: Which, *, to: AsyncQueue, state: LiveState | None = None, now: datetime | None = None
    ) -> dict[int, int]:
        """Move messages that no consumer holds to another queue; see `Queue.move`."""
        other = to._own
        return await self._threads.run(partial(self._own.move, which, to=other, state=state, now=now))

    async def move_batches(
        self, *, to: AsyncQueue, history: bool = False, follow: bool = False, now: datetime | None = None
    ) -> AsyncIterator[Moved]:
        """Move all messages to a queue of another database, and yield each batch; see `Queue.move_batches`."""
        move_batches = partial(self._own.move_batches, to=to._own, history=history, follow=follow, now=now)
        batches = await self._threads.run(move_batches)
        try:
            while batch := await self._threads.run(partial(next, batches, None)):
                yield batch
        finally:
            await self._threads.run(batches.close)

    async def purge(self, *, in_progress: bool = False) -> int:
        """Delete every message that waits; with `in_progress`, also messages in progress. See `Queue.purge`."""
        return await self._threads.run(partial(self._own.purge, in_progress=in_progress))


__all__ = ["AsyncBatch", "AsyncQueue"]
