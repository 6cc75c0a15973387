"""The tasks of the tests."""

from __future__ import annotations

from typing import Any

from django.db import transaction

try:
    from django.tasks import task, task_backends
except ImportError:
    from django_tasks import task, task_backends

ran: list[Any] = []


@task()
def add(a: int, b: int) -> int:
    ran.append((a, b))
    return a + b


@task()
async def later(words: str) -> str:
    return words.upper()


@task(takes_context=True)
def third_time(context: Any) -> int:
    """Fail until the third attempt."""
    if context.attempt < 3:
        raise KeyError(f"attempt {context.attempt}, {len(context.task_result.errors)} before")
    return int(context.attempt)


@task(takes_context=True)
def reporting(context: Any) -> None:
    """Report progress, and note what the backend tells of it meanwhile."""
    with transaction.atomic():
        context.progress(0.5, {"row": 1})
        found = task_backends["default"].progress(context.task_result.id)
        ran.append((found.fraction, found.detail))


@task()
def leave() -> None:
    raise SystemExit("no exit of the worker")


@task()
def chain(n: int) -> None:
    ran.append(n)
    if n:
        chain.enqueue(n - 1)


@task()
def strange() -> Any:
    return object()


def no_task() -> None:
    ran.append("no task")


@task()
def forget(alias: str, how: str) -> None:
    """Enqueue in a transaction that is never ended."""
    if how == "atomic":
        transaction.atomic(using=alias).__enter__()
    else:
        transaction.set_autocommit(False, using=alias)
    add.enqueue(7, 8)
