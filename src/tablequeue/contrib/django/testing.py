"""Tools for the tests of a project: collect the tasks that code enqueues, and run them at once.

Both work in a `TestCase`, whose transaction is rolled back, and on a database in memory: they need no worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tablequeue.contrib.django.backend import Backend
from tablequeue.contrib.django.compat import (
    TaskResult,
    TaskResultDoesNotExist,
    task_backends,
    task_enqueued,
    task_started,
)
from tablequeue.contrib.django.running import run


@contextmanager
def enqueued(backend: str = "default") -> Iterator[list[TaskResult]]:
    """Collect the results of the tasks that the block enqueues in a backend, in their order.

    At the end of the block, tasks that were rolled back are removed: they are in no queue, and never ran. They stay if
    the block is a part of a coroutine, which cannot query the database.
    """
    collected: list[TaskResult] = []
    started: set[str] = set()

    def collect(sender: Any, task_result: TaskResult, **kwargs: Any) -> None:
        if task_result.backend == backend:
            collected.append(task_result)

    def start(sender: Any, task_result: TaskResult, **kwargs: Any) -> None:
        started.add(task_result.id)

    task_enqueued.connect(collect)
    task_started.connect(start)
    try:
        yield collected
        if isinstance(task_backends[backend], Backend) and not _in_coroutine():
            collected[:] = [each for each in collected if each.id in started or _exists(each, backend)]
    finally:
        task_enqueued.disconnect(collect)
        task_started.disconnect(start)


def run_tasks(backend: str = "default") -> list[TaskResult]:
    """Run the tasks that are ready in the queues of a backend, and those that they enqueue; return their results.

    They run in this thread, on Django's connection: in the transaction of the test. A task that raises has failed, and
    its result has the error. Tasks that run later, or are retried after a backoff, stay in their queue.
    """
    of: Backend = task_backends[backend]
    results: list[TaskResult] = []
    found = True
    while found:
        found = False
        for queue_name in sorted(of.queues):
            while (claim := of.queue(queue_name).pop()) is not None:
                found = True
                if (result := run(claim)) is not None:
                    results.append(result)
    return results


def _exists(result: TaskResult, backend: str) -> bool:
    try:
        task_backends[backend].get_result(result.id)
    except TaskResultDoesNotExist:
        return False
    return True


def _in_coroutine() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


__all__ = ["enqueued", "run_tasks"]
