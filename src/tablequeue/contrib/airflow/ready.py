"""The trigger of a deferred sensor: it ends when the queue has a message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

from airflow.sdk import BaseHook
from airflow.triggers.base import BaseTrigger, TriggerEvent

from tablequeue import aio
from tablequeue.contrib.airflow.hook import DEFAULT, check_delivery, url_of
from tablequeue.contrib.outages import consuming, lasting
from tablequeue.errors import LeaseLost


class ReadyTrigger(BaseTrigger):
    """Waits until a message of the queue is ready, also during an outage. It claims the message, and releases it."""

    def __init__(self, queue_name: str, tablequeue_conn_id: str = DEFAULT) -> None:
        super().__init__()
        self.queue_name = queue_name
        self.tablequeue_conn_id = tablequeue_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {"queue_name": self.queue_name, "tablequeue_conn_id": self.tablequeue_conn_id}
        return f"{type(self).__module__}.{type(self).__qualname__}", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        url = url_of(await BaseHook.aget_connection(self.tablequeue_conn_id))
        async with await aio.connect(url) as database:
            queue = await database.consumer(self.queue_name)
            check_delivery(self.queue_name, queue.definition)
            async with aclosing(consuming(queue)) as messages:
                message = await anext(messages)
            with suppress(LeaseLost):
                await lasting(message.release)
        yield TriggerEvent(True)
