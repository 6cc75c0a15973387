"""A sensor that waits until a queue has a message, and its trigger for the time in which it is deferred."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

from airflow.configuration import conf
from airflow.sdk import BaseHook, BaseSensorOperator
from airflow.triggers.base import TriggerEvent

from tablequeue import aio
from tablequeue.contrib.airflow.hook import DEFAULT, Hook, QueueTrigger, check_delivery, url_of
from tablequeue.contrib.outages import consuming, lasting
from tablequeue.errors import LeaseLost


class ReadyTrigger(QueueTrigger):
    """Waits until a message of the queue is ready, also during an outage. It claims the message, and releases it."""

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


class Sensor(BaseSensorOperator):
    """Succeeds when a message of the queue is ready. It keeps no message: the next task pops it.

    So a message is completed by the task that has done its work, and a killed worker loses nothing.

    queue_name   a queue, or a subscription `topic/name`.
    deferrable   whether it waits in the triggerer, where a push wakes it, and occupies no worker.
    """

    template_fields = ("queue_name",)

    def __init__(
        self,
        *,
        queue_name: str,
        tablequeue_conn_id: str = DEFAULT,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.queue_name = queue_name
        self.tablequeue_conn_id = tablequeue_conn_id
        self.deferrable = deferrable

    def poke(self, context: Any) -> bool:
        with Hook(self.tablequeue_conn_id).database() as database:
            queue = database.consumer(self.queue_name)
            check_delivery(self.queue_name, queue.definition)
            message = queue.pop()
            if message is not None:
                message.release()
            return message is not None

    def execute(self, context: Any) -> Any:
        if not self.deferrable:
            return super().execute(context)
        trigger = ReadyTrigger(self.queue_name, self.tablequeue_conn_id)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=self.timeout)

    def execute_complete(self, context: Any, event: Any) -> None:
        """Succeed: the trigger has seen a message."""
