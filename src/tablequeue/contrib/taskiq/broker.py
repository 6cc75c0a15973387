"""The broker: one queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from tablequeue import aio
from tablequeue.contrib.outages import consuming, lasting
from tablequeue.errors import BadInput, LeaseLost, QueueNotFound, TablequeueError
from tablequeue.model.pacing import backoff

logger = logging.getLogger("tablequeue.contrib.taskiq")


class Held:
    """A message that taskiq has and has not acknowledged, with its last claim."""

    def __init__(self, claim: aio.AsyncClaim) -> None:
        self.claim = claim


class Broker(AsyncBroker):
    """Keeps taskiq's messages in one queue of tablequeue.

    url          the URL for `tablequeue.aio.connect`. The connection is made by `startup`.
    queue_name   the queue; it is made if it does not exist.
    options      options of `Database.create_queue`, for a queue that does not exist yet; `max_attempts` counts the
                 deliveries of one message, and not taskiq's retries, which are messages.

    The label `delay` of a task is a number of seconds: the message is due in the table after that time. The label
    `priority` is for a queue with `order="priority"`.
    """

    def __init__(self, url: Any, *, queue_name: str = "taskiq", **options: Any) -> None:
        super().__init__()
        self._url = url
        self._queue_name = queue_name
        self._options = options
        self._held: dict[int, Held] = {}
        """By the ids of the messages."""
        self._database: aio.AsyncDatabase | None = None

    async def startup(self) -> None:
        """Connect, and open the queue, or make it."""
        self._database = await aio.connect(self._url)
        await self._open(self._database)
        self._extending = asyncio.create_task(self._extend())
        await super().startup()

    async def _open(self, database: aio.AsyncDatabase) -> None:
        """Open the queue, or make it; do so again if it was dropped with the messages held here."""
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
            database, self._database = self._database, None
            try:
                await self._queue.release_many([held.claim for held in self._held.values()])
            except LeaseLost:
                pass  # they are delivered again anyway
            except TablequeueError as error:
                logger.warning("Messages that are not acknowledged come back when their leases end: %s", error)
            finally:
                await database.close()

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
        """Yield messages. Each is under a lease, which is extended until taskiq acknowledges the message.

        An error would end taskiq's worker, with the tasks that it runs. So it waits until an outage is over.
        """
        while self._database is not None:
            try:
                async with aclosing(consuming(self._queue, self._extend_held)) as messages:
                    async for claim in messages:
                        if claim.id in self._held:  # it runs here, and its lease was lost
                            self._held[claim.id].claim = claim
                            continue
                        held = self._held[claim.id] = Held(claim)
                        yield AckableMessage(data=claim.payload, ack=partial(self._ack, held))
            except QueueNotFound:
                await lasting(partial(self._open, self._database))

    async def _ack(self, held: Held) -> None:
        """Complete the message, also after an outage. If its lease is lost, it is delivered again."""
        try:
            while True:
                claim = held.claim
                with suppress(LeaseLost, QueueNotFound):
                    await lasting(claim.complete)
                if held.claim is claim:  # else it was claimed again meanwhile, by this process
                    break
        finally:
            if self._held.get(held.claim.id) is held:
                del self._held[held.claim.id]

    async def _extend_held(self) -> None:
        with suppress(LeaseLost):
            await self._queue.extend_many([held.claim for held in self._held.values()])

    async def _extend(self) -> None:
        """Extend the leases of all messages in time, and as soon as an outage of the database is over."""
        failures = 0
        while True:
            await asyncio.sleep(backoff(failures) if failures else self._queue.definition.lease / 3)
            try:
                await self._extend_held()
                failures = 0
            except TablequeueError:
                failures += 1
