"""An operator that pushes."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator

from tablequeue.contrib.airflow.hook import DEFAULT, Hook


class PushOperator(BaseOperator):
    """Pushes a message, and returns its id.

    queue_name, payload, key   are templates. With a `key`, such as `{{ run_id }}`, a retried task does not push again
                               while the queue has the message, and returns its id.
    push_options               further options of `Queue.push`: `delay`, `priority`, `group`, `headers` and others.
    """

    template_fields = ("queue_name", "payload", "key")

    def __init__(
        self,
        *,
        queue_name: str,
        payload: Any,
        key: str | None = None,
        push_options: dict[str, Any] | None = None,
        tablequeue_conn_id: str = DEFAULT,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.queue_name = queue_name
        self.payload = payload
        self.key = key
        self.push_options = push_options
        self.tablequeue_conn_id = tablequeue_conn_id

    def execute(self, context: Any) -> int:
        with Hook(self.tablequeue_conn_id).database() as database:
            queue = database.queue(self.queue_name)
            return queue.push(self.payload, key=self.key, on_conflict="return", **(self.push_options or {}))
