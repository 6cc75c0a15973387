"""The backend: tasks become messages of table queues, one queue for each name in `QUEUES`."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.core import checks
from django.utils import timezone

from tablequeue.contrib.django import checking, database, results
from tablequeue.contrib.django.compat import (
    BaseTaskBackend,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_backends,
    task_enqueued,
)
from tablequeue.errors import QueueNotFound
from tablequeue.model.message import Message
from tablequeue.model.progress import Progress
from tablequeue.queue import Queue

# The keys of OPTIONS, besides `database` and `retry`: options of `Database.create_queue`.
DEFINED = ("lease", "max_attempts", "backoff", "history", "concurrency", "rate", "expires")
OPTIONS = ("database", "retry", *DEFINED)


class Backend(BaseTaskBackend):
    """A backend for `TASKS`. Its OPTIONS, which may all be left out:

    database   the alias of the database that has the queues; `default` if not given.
    retry      whether a task that raises is tried again, after the backoff, until it was begun `max_attempts` times.
               False if not given: it has failed. If its worker dies, a task is tried again in either case.
    lease, max_attempts, backoff, history, concurrency, rate, expires
               options of `Database.create_queue`. They take effect with the next `migrate`.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.database: str = self.options.get("database", "default")
        self.retry: bool = self.options.get("retry", False)

    def definition(self) -> dict[str, Any]:
        """Return the options with which the queues are made."""
        given = {name: self.options[name] for name in DEFINED if name in self.options}
        return {"order": "priority", "results": True, **given}

    def table_queue(self, queue_name: str) -> str:
        """Return the name in the database of the table queue of a queue of tasks."""
        return f"{self.alias}_{queue_name}"

    def queue(self, queue_name: str) -> Queue:
        """Return the table queue of a queue of tasks, on Django's connections."""
        try:
            return database.queue(self.database, self.table_queue(queue_name))
        except QueueNotFound as error:
            raise QueueNotFound(error.cause, "Run `manage.py migrate`.") from None

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Push the task in the open transaction of Django's connection, or in a transaction of its own."""
        self.validate_task(task)
        queue, now, token = self.queue(task.queue_name), timezone.now(), secrets.token_hex(results.TOKEN_BYTES)
        due = results.aware(task.run_after)
        payload = {"task": task.module_path, "args": normalize_json(args), "kwargs": normalize_json(kwargs)}
        headers = {"token": token, "enqueued_at": results.aware(now).isoformat()}
        if due is not None:
            headers["run_after"] = due.isoformat()
        id = queue.push(payload, due=due, priority=task.priority, headers=headers)
        result = TaskResult(
            task=task,
            id=results.id_of(task.queue_name, id, token),
            status=TaskResultStatus.READY,
            enqueued_at=now,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=payload["args"],
            kwargs=payload["kwargs"],
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result of a task from the queue or its history. `TaskResultDoesNotExist` if it is in neither."""
        queue_name, queue, message = self._found(result_id)
        value = results.value_of(queue, message.id) if message.state == "finished" else None
        return results.of_message(self.alias, queue_name, message, value)

    def progress(self, result_id: str) -> Progress | None:
        """Return the last report of a running task, by `context.progress`; None if it does not run, or has no report.

        `TaskResultDoesNotExist` as in `get_result`.
        """
        _, queue, message = self._found(result_id)
        return queue.progress(message.id)

    def check(self, **kwargs: Any) -> Iterator[checks.CheckMessage]:
        return checking.messages(self, backends(), OPTIONS)

    def _found(self, result_id: str) -> tuple[str, Queue, Message]:
        """Return the queue and the message of a task."""
        for queue_name, id, token in results.parsed(result_id, self.queues):
            queue = self.queue(queue_name)
            message = queue.find(id)
            if message is not None and secrets.compare_digest(str(message.headers.get("token")), token):
                return queue_name, queue, message
        raise TaskResultDoesNotExist(result_id)


def backends() -> list[Backend]:
    """Return the backends of the settings that are of this class."""
    return [backend for backend in task_backends.all() if isinstance(backend, Backend)]


def named(table_queue: str) -> tuple[Backend, str]:
    """Return the backend and the name of the queue of tasks to which a table queue belongs."""
    for backend in backends():
        for queue_name in backend.queues:
            if backend.table_queue(queue_name) == table_queue:
                return backend, queue_name
    raise QueueNotFound(f"No backend of TASKS has the table queue {table_queue!r}.", "Correct QUEUES in the settings.")
