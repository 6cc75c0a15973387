"""A sensor that waits until a queue has a message."""

from __future__ import annotations

from typing import Any

from airflow.configuration import conf
from airflow.sdk import BaseSensorOperator

from tablequeue.contrib.airflow.hook import DEFAULT, Hook, check_delivery
from tablequeue.contrib.airflow.ready import ReadyTrigger


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
