"""Results: the state of a task, from its message, and the id that Django uses for it."""

from __future__ import annotations

import json
import re
import sys
import zlib
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.utils import timezone
from django.utils.module_loading import import_string

from tablequeue.consumer import Consumer
from tablequeue.contrib.django.compat import Task, TaskError, TaskResult, TaskResultStatus
from tablequeue.ext import context_of
from tablequeue.model.attempts import AttemptError, traceback_of
from tablequeue.model.message import Claim, Message
from tablequeue.queue import Queue
from tablequeue.worker.completer import EXPIRED

TOKEN_BYTES = 12
# A checksum of the name of the queue, the id of the message, and the token in its headers: at most 54 characters, which
# nobody can guess.
_ID = re.compile(rf"([0-9a-f]{{8}})-([0-9]{{1,18}})-([0-9a-f]{{{2 * TOKEN_BYTES}}})")
# Errors that are not tracebacks of a task, and the class by which each is shown.
LOST, ENDED = "tablequeue.errors.LeaseLost", "tablequeue.errors.HandlerFailed"
STATUSES: Mapping[str, TaskResultStatus] = {
    "ready": TaskResultStatus.READY,
    "scheduled": TaskResultStatus.READY,
    "blocked": TaskResultStatus.READY,
    "in_progress": TaskResultStatus.RUNNING,
    "finished": TaskResultStatus.SUCCESSFUL,
    "dead": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
    "expired": TaskResultStatus.FAILED,
}


def id_of(queue_name: str, id: int, token: str) -> str:
    """Return the id of a result."""
    return f"{zlib.crc32(queue_name.encode()):08x}-{id}-{token}"


def parsed(result_id: str, queues: Collection[str]) -> Iterator[tuple[str, int, str]]:
    """Yield the queue, message and token that an id of a result may be of; nothing if it is not an id of ours."""
    if match := _ID.fullmatch(str(result_id)):
        checksum, id, token = match.groups()
        for queue_name in sorted(queues):
            if f"{zlib.crc32(queue_name.encode()):08x}" == checksum:
                yield queue_name, int(id), token


def of_message(alias: str, queue_name: str, message: Message, value: Any = None) -> TaskResult:
    """Return the current result of a task. ImportError if its function is gone."""
    consumers = [error.consumer or "" for error in message.errors]
    if message.state in ("in_progress", "finished"):
        consumers.append(message.consumer or "")
    status = STATUSES[message.state]
    ended = message.finished_at
    if ended is None and status == TaskResultStatus.FAILED and message.errors:
        ended = message.errors[-1].at
    result = TaskResult(
        task=task_of(alias, queue_name, message),
        id=id_of(queue_name, message.id, token_of(message)),
        status=status,
        enqueued_at=enqueued_at(message),
        started_at=shown(message.first_popped_at),
        finished_at=shown(ended),
        last_attempted_at=shown(message.popped_at),
        args=message.payload["args"],
        kwargs=message.payload["kwargs"],
        backend=alias,
        errors=list(map(_error, message.errors)),
        worker_ids=consumers,
    )
    set_fields(result, _return_value=value)
    return result


def of_claim(alias: str, queue_name: str, claim: Claim, queue: Consumer) -> TaskResult:
    """Return the result of a task that is about to run, with the errors of the attempts before."""
    # A first attempt has nothing to read.
    message = queue.find(claim.id) if claim.attempt > 1 else None
    before = () if message is None else message.errors
    return TaskResult(
        task=task_of(alias, queue_name, claim),
        id=id_of(queue_name, claim.id, token_of(claim)),
        status=TaskResultStatus.RUNNING,
        enqueued_at=enqueued_at(claim),
        started_at=shown((message and message.first_popped_at) or claim.popped_at),
        finished_at=None,
        last_attempted_at=shown(claim.popped_at),
        args=claim.payload["args"],
        kwargs=claim.payload["kwargs"],
        backend=alias,
        errors=list(map(_error, before)),
        worker_ids=[*(error.consumer or "" for error in before), context_of(queue).who],
    )


def task_of(alias: str, queue_name: str, message: Message | Claim) -> Task:
    """Return the task of a message, as it was enqueued."""
    path = message.payload["task"]
    module = path.rpartition(".")[0]
    if module not in sys.modules and not any(f"{module}.".startswith(f"{one}.") for one in _packages()):
        raise SuspiciousOperation(
            f"Message {message.id} is of {path}, whose module is of no app and not imported. "
            "If it is a module of tasks, import it in the `ready` of an app."
        )
    task = import_string(path)
    if not isinstance(task, Task):
        raise SuspiciousOperation(f"Message {message.id} is of {path}, which is no task.")
    run_after = message.headers.get("run_after")
    return task.using(
        priority=message.priority,
        queue_name=queue_name,
        run_after=run_after and shown(datetime.fromisoformat(run_after)),
        backend=alias,
    )


def _packages() -> Iterator[str]:
    """Return the packages in which a message may name a module: to import any other one would run its code."""
    yield from (config.name for config in apps.get_app_configs())
    # The package of the project is mostly no app.
    named = (getattr(settings, "SETTINGS_MODULE", None), getattr(settings, "ROOT_URLCONF", None))
    yield from (name.partition(".")[0] for name in named if isinstance(name, str))


def token_of(message: Message | Claim) -> str:
    """Return the part of the id of a result that nobody can guess; "" if it was not pushed by a backend."""
    return str(message.headers.get("token", ""))


def enqueued_at(message: Message | Claim) -> datetime | None:
    """Return when the program enqueued the task, by its own clock as in Django; else when it was pushed."""
    at = message.headers.get("enqueued_at")
    return shown(datetime.fromisoformat(at) if at else message.pushed_at)


def value_of(queue: Queue, id: int) -> Any:
    """Return the return value of a finished message's task."""
    context = context_of(queue)
    result = context.run(context.reads.result, {"id": id})
    return None if result is None else json.loads(result)


def failure(error: BaseException) -> str:
    """Return the text that is kept for an exception: the path of its class in the first line, then its traceback."""
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}\n{traceback_of(error)}"


def task_error(text: str) -> TaskError:
    """Return the error in such a text; for an error that the worker wrote, a class of tablequeue."""
    path, newline, traceback = text.partition("\n")
    if newline and "." in path and " " not in path:
        return TaskError(exception_class_path=path, traceback=traceback)
    return TaskError(exception_class_path=LOST if text == EXPIRED else ENDED, traceback=text)


def set_fields(result: TaskResult, **values: Any) -> None:
    """Change fields of a result, which is frozen for everybody else."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def aware(time: datetime | None) -> Any:
    """Return a time of a program as an aware one."""
    return timezone.make_aware(time) if time is not None and timezone.is_naive(time) else time


def shown(time: datetime | None) -> datetime | None:
    """Return an aware time as programs of Django have it: in UTC, or naive and local without USE_TZ."""
    if time is None:
        return None
    shown: datetime = time.astimezone(UTC) if settings.USE_TZ else timezone.make_naive(time)
    return shown


def _error(error: AttemptError) -> TaskError:
    return task_error(error.error)
