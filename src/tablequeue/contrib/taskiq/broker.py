"""The broker: one queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from tablequeue import aio
from tablequeue.errors import BadInput, LeaseLost, QueueNotFound, TablequeueError


class Broker(AsyncBroker):
    """Keeps taskiq's messages in one queue of tablequeue.

    url          that of `tablequeue.aio.connect`. The connection is made by `startup`.
    queue_name   the queue; it is made if it is not there.
    options      those of `Database.create_queue`, for a queue that is not there yet; `max_attempts` counts the
                 deliveries of one message, and not taskiq's retries, which are messages.

    The label `delay` of a task is a number of seconds: the message is due in the table after that time. The label
    `priority` is for a queue with `order="priority"`.
    """

    def __init__(self, url: Any, *, queue_name: str = "taskiq", **options: Any) -> None:
        super().__init__()
        self._url = url
        self._queue_name = queue_name
        self._options = options
        self._held: set[aio.AsyncClaim] = set()
        self._database: aio.AsyncDatabase | None = None

    async def startup(self) -> None:
        """Connect, and open the queue, or make it."""
        self._database = await aio.connect(self._url)
        await self._open(self._database)
        self._extending = asyncio.create_task(self._extend())
        await super().startup()

    async def _open(self, database: aio.AsyncDatabase) -> None:
        """Open the queue, or make it; once more if it was dropped, and with it what was held of it."""
        self._held.clear()
        try:
            self._queue = await database.queue(self._queue_name)
        except QueueNotFound:
            self._queue = await database.create_queue(self._queue_name, payload="bytes", **self._options)

    async def shutdown(self) -> None:
        """Release the messages that are not acknowledged, and close the connections."""
        await super().shutdown()
        if self._database is not None:
            self._extending.cancel()
            with suppress(LeaseLost):
                await self._queue.release_many(self._held)
            await self._database.close()
            self._database = None

    async def kick(self, message: BrokerMessage) -> None:
        """Push the message. When this has returned, it survives the death of any process."""
        if self._database is None:
            raise BadInput("The broker has not been started.", "Await its startup() first.")
        labels = message.labels
        delay, priority = labels.get("delay"), labels.get("priority")
        options: Any = {
            "delay": None if delay is None else float(delay),
            "priority": None if priority is None else int(priority),
        }
        try:
            await self._queue.push(message.message, **options)
        except QueueNotFound:
            await self._open(self._database)
            await self._queue.push(message.message, **options)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield messages. Each is under a lease, which is extended until taskiq acknowledges the message."""
        while self._database is not None:
            consuming: Any = self._queue.consume()  # one by one: what is not handed over has no one to extend it
            try:
                async with aclosing(consuming) as messages:
                    async for claim in messages:
                        self._held.add(claim)
                        yield AckableMessage(data=claim.payload, ack=partial(self._ack, claim))
            except QueueNotFound:
                await self._open(self._database)

    async def _ack(self, claim: aio.AsyncClaim) -> None:
        """Complete the message; if its lease is lost, it is delivered again."""
        with suppress(LeaseLost):
            await claim.complete()
        self._held.discard(claim)

    async def _extend(self) -> None:
        """Extend the leases of all messages in time, also after an outage of the database."""
        while True:
            await asyncio.sleep(self._queue.definition.lease / 3)
            with suppress(TablequeueError):
                await self._queue.extend_many([*self._held])
