"""The trigger of asset watchers: each message of a queue is an event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import msgspec
from airflow.sdk import BaseHook
from airflow.sdk.execution_time import task_runner
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from tablequeue import aio
from tablequeue.contrib.airflow.hook import DEFAULT, QueueTrigger, check_delivery, url_of
from tablequeue.contrib.outages import consuming, lasting
from tablequeue.errors import BadInput, LeaseLost, TablequeueError

# Messages that wait until Airflow has stored their events. It confirms them about once a second.
IN_PROGRESS = 100


class Trigger(QueueTrigger, BaseEventTrigger):
    """Makes an event of each message of a queue, or of a subscription `topic/name`; never loses one.

    A message is completed after Airflow has stored its event. Before that it is under its lease: if the triggerer is
    killed, it is delivered again when the lease ends, so an event may come twice. Its `id` is the same then.

    The event is a dict: `queue`, `id`, `payload`, `headers`.
    """

    def shared_stream_key(self) -> Hashable | None:
        """Return the key under which all watchers of a queue share one consumer. None for a deferred task."""
        return None if self.task_instance else (self.tablequeue_conn_id, self.queue_name)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Producer:
        return Producer(**kwargs)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Delivery]) -> AsyncIterator[TriggerEvent]:
        async for delivery in shared_stream:
            yield TriggerEvent(delivery.event)
            delivery.note()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Refuse: a deferred task takes one event, and Airflow drops the others; older Airflows confirm none."""
        raise BadInput("This trigger is for asset watchers of Airflow 3.3.", "Defer a task with the Sensor.")
        yield


class Delivery:
    """A message on its way to the triggers that watch its queue.

    noted   how many triggers have handed over its event while Airflow still waited for confirmations. It counts an
            event that comes later, while the triggerer stops, as stored, which it is not (3.3.2).
    """

    def __init__(self, message: aio.AsyncClaim, event: dict[str, Any], producer: Producer) -> None:
        self.message = message
        self.event = event
        self.noted = 0
        self._producer = producer

    def note(self) -> None:
        """Count the event that a trigger has handed over; to be called when the trigger is asked for the next."""
        self.noted += self._producer.is_confirmed_to


class Producer(SharedStreamProducer):
    """The consumer of one queue in a triggerer. Airflow calls `advance` for events that it has stored."""

    def __init__(self, queue_name: str, tablequeue_conn_id: str = DEFAULT) -> None:
        self._queue_name = queue_name
        self._conn_id = tablequeue_conn_id
        self._room = asyncio.Semaphore(IN_PROGRESS)
        self._held: set[aio.AsyncClaim] = set()
        self._database: aio.AsyncDatabase | None = None
        self._streaming = True
        # The task in which the triggerer receives confirmations. It ends before the triggers do.
        self._confirmations: asyncio.Task[Any] = task_runner.SUPERVISOR_COMMS._reader_task  # noqa: SLF001

    @property
    def is_confirmed_to(self) -> bool:
        """Whether Airflow confirms each event that it stores from now on."""
        return self._streaming and not self._confirmations.done()

    async def open_stream(self) -> AsyncIterator[tuple[Delivery, Delivery]]:
        """Yield each message; at most IN_PROGRESS with an event not yet stored. It waits until an outage is over."""
        self._database = await aio.connect(url_of(await BaseHook.aget_connection(self._conn_id)))
        self._queue = await self._database.consumer(self._queue_name)
        check_delivery(self._queue_name, self._queue.definition)
        try:
            async with aclosing(consuming(self._queue)) as messages:
                async for message in messages:
                    event = {name: getattr(message, name) for name in ("id", "payload", "headers")}
                    event["queue"] = self._queue_name
                    if reason := unfit(event):
                        with suppress(LeaseLost):
                            await lasting(partial(message.fail, reason, retry=False))
                        continue
                    self._held.add(message)
                    await self._room.acquire()
                    delivery = Delivery(message, event, self)
                    yield delivery, delivery
        finally:
            self._streaming = False

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Complete the messages with a stored event, and fail or release the others.

        A message that lost its lease meanwhile is delivered again. It waits until an outage is over.
        """
        done: dict[str, list[aio.AsyncClaim]] = {"stored": [], "failed": [], "unknown": []}
        for delivery, outcome in batch:
            stored = outcome.is_clean and outcome.acked == delivery.noted
            done["stored" if stored else "failed" if outcome.failed else "unknown"].append(delivery.message)
        for finish in (
            partial(self._queue.complete_many, done["stored"]),
            partial(self._queue.fail_many, done["failed"], "Airflow has not stored the event."),
            partial(self._queue.release_many, done["unknown"]),
        ):
            with suppress(LeaseLost):
                await lasting(finish)
        for delivery, _ in batch:
            self._held.discard(delivery.message)
            self._room.release()

    async def aclose(self) -> None:
        """Release the messages with an event that is not known to be stored."""
        if self._database is None:
            return
        try:
            if self._held:
                await self._queue.release_many(self._held)
        except TablequeueError:
            return  # the leases are lost, or end by themselves
        finally:
            await self._database.close()


def unfit(event: dict[str, Any]) -> str:
    """Return why Airflow cannot store the event; empty if it can. Such an event would end the whole triggerer."""
    try:
        msgspec.msgpack.encode(event)  # to Airflow's other process: no integer of more than 64 bits
        json.dumps(event)  # to its database: no bytes
    except (OverflowError, TypeError, ValueError, RecursionError) as error:
        return f"Airflow cannot store this message as an event: {error}"
    return ""
