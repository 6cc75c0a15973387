"""The trigger of asset watchers: each message of a queue is an event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from airflow.sdk import BaseHook
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from tablequeue import aio
from tablequeue.contrib.airflow.hook import DEFAULT, url_of
from tablequeue.errors import BadInput, LeaseLost

# Messages that wait until Airflow has stored their events. It confirms them about once a second.
IN_PROGRESS = 100
PREFETCH = 20


class Trigger(BaseEventTrigger):
    """Makes an event of each message of a queue, or of a subscription `topic/name`; never loses one.

    A message is completed after Airflow has stored its event. Before that it is under its lease: if the triggerer is
    killed, it is delivered again when the lease ends, so an event may come twice. Its `id` is the same then.

    The event is a dict: `queue`, `id`, `payload`, `headers`.
    """

    def __init__(self, queue_name: str, tablequeue_conn_id: str = DEFAULT) -> None:
        super().__init__()
        self.queue_name = queue_name
        self.tablequeue_conn_id = tablequeue_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {"queue_name": self.queue_name, "tablequeue_conn_id": self.tablequeue_conn_id}
        return f"{type(self).__module__}.{type(self).__qualname__}", kwargs

    def shared_stream_key(self) -> Hashable:
        """All watchers of a queue share one consumer."""
        return self.tablequeue_conn_id, self.queue_name

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Producer:
        return Producer(**kwargs)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        async for event in shared_stream:
            yield TriggerEvent(event)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        raise BadInput("This Airflow shares no streams between triggers.", "Use Airflow 3.3 or newer.")
        yield


class Producer(SharedStreamProducer):
    """The consumer of one queue in a triggerer. Airflow calls `advance` for events that it has stored."""

    def __init__(self, queue_name: str, tablequeue_conn_id: str = DEFAULT) -> None:
        self._queue_name = queue_name
        self._conn_id = tablequeue_conn_id
        self._room = asyncio.Semaphore(IN_PROGRESS)
        self._held: set[aio.AsyncClaim] = set()
        self._database: aio.AsyncDatabase | None = None

    async def open_stream(self) -> AsyncIterator[tuple[dict[str, Any], aio.AsyncClaim]]:
        """Yield each message as an event, and its claim; at most IN_PROGRESS before they are stored."""
        self._database = await aio.connect(url_of(await BaseHook.aget_connection(self._conn_id)))
        self._queue = await self._database.queue(self._queue_name)
        if self._queue.definition.delivery == "at_most_once":
            raise BadInput(
                f"The queue {self._queue_name!r} delivers at most once: a killed triggerer would lose messages.",
                "Watch a queue that delivers at least once.",
            )
        consuming: Any = self._queue.consume(prefetch=PREFETCH)
        async with aclosing(consuming) as messages:
            async for message in messages:
                event = {name: getattr(message, name) for name in ("id", "payload", "headers")}
                event["queue"] = self._queue_name
                if reason := unfit(event):
                    await message.fail(reason, retry=False)
                    continue
                self._held.add(message)
                await self._room.acquire()
                yield event, message

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Complete the messages whose events are stored, and fail or release the others.

        A message whose lease was lost meanwhile is delivered again.
        """
        stored = [message for message, outcome in batch if outcome.is_clean]
        failed = [message for message, outcome in batch if outcome.failed]
        unwatched = [message for message, outcome in batch if not (outcome.is_clean or outcome.failed)]
        for finish in (
            self._queue.complete_many(stored),
            self._queue.fail_many(failed, "Airflow did not store the event in time."),
            self._queue.release_many(unwatched),
        ):
            with suppress(LeaseLost):
                await finish
        for message, _ in batch:
            self._held.discard(message)
            self._room.release()

    async def aclose(self) -> None:
        """Release the messages whose events are not known to be stored."""
        if self._database is None:
            return
        try:
            if self._held:
                await self._queue.release_many(self._held)
        except LeaseLost:
            return
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
