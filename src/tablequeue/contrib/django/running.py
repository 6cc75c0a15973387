"""Runs the task of a message: the handler of the worker, and of tests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from time import sleep
from typing import Any, TypeVar

import django
from django.apps import apps
from django.db import close_old_connections, connections, reset_queries
from django.db.transaction import TransactionManagementError
from django.utils import timezone

from tablequeue.contrib.django import results
from tablequeue.contrib.django.backend import Backend, named
from tablequeue.contrib.django.compat import (
    Task,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from tablequeue.errors import TRANSIENT, LeaseLost
from tablequeue.model.message import Claim
from tablequeue.model.pacing import backoff
from tablequeue.model.states import FailedState
from tablequeue.worker.outcome import Finished

logger = logging.getLogger("tablequeue.django")

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Context(TaskContext):
    """The context of a task with `takes_context`: Django's context, and the progress of the task."""

    claim: Claim

    def progress(self, fraction: float, detail: Any = None) -> None:
        """Report how much of the task is done, from 0 to 1, with a JSON value; at most one write a second.

        `Backend.progress` returns it while the task runs. See `Claim.progress`.
        """
        self.claim.progress(fraction, detail)


def handle(claim: Claim) -> Finished:
    """Run the task of a message, and close connections of Django afterwards as a request does.

    When it returns, the message is completed, or the attempt has failed: see `run`. An error of the task is never
    raised here.
    """
    if not apps.ready:
        django.setup()  # the process of a consumer begins with an empty Python
    reset_queries()
    close_old_connections()
    try:
        run(claim)
    finally:
        close_old_connections()
    return Finished()


def run(claim: Claim) -> TaskResult | None:
    """Run the task of a message, and finish the message; return the result as it is then.

    `task_started` is sent before, and `task_finished` when the message is finished and the task is not tried again.
    A crash between the two leaves the signal out, never the result. None if the message names a task that does not
    exist, or if its lease was lost: then another worker has it, or will have it.
    """
    queue = claim.queue
    backend, queue_name = named(queue.name)
    try:
        result = results.of_claim(backend.alias, queue_name, claim, queue)
    except Exception as error:
        logger.exception("%s: message %d is of no task that there is", queue.name, claim.id)
        _fail(claim, backend, results.failure(error))
        return None
    try:
        task_started.send(sender=type(backend), task_result=result)
        value = normalize_json(_call(result.task, result, claim))
        if not _until_answered(claim, partial(_complete, claim, value)):
            return None
    except BaseException as error:  # a SystemExit of a task is its failure, not the worker's end
        text = results.failure(error)
        state = _fail(claim, backend, text)
        if state is None:
            return None
        result.errors.append(results.task_error(text))
        _end(backend, result, results.STATUSES[state])  # here, where receivers that log find the exception
    else:
        results.set_fields(result, _return_value=value)
        _end(backend, result, TaskResultStatus.SUCCESSFUL)
    return result


def _end(backend: Backend, result: TaskResult, status: TaskResultStatus) -> None:
    results.set_fields(result, status=status)
    if result.is_finished:
        results.set_fields(result, finished_at=timezone.now())
        task_finished.send_robust(sender=type(backend), task_result=result)


def _call(task: Task, result: TaskResult, claim: Claim) -> Any:
    context = (Context(task_result=result, claim=claim),) if task.takes_context else ()
    before = _in_transaction()
    try:
        value = task.call(*context, *result.args, **result.kwargs)
    finally:
        # Else later tasks of the thread would run in it, and on SQLite its lock would keep this task from being
        # finished.
        if left := sorted(_in_transaction() - before):
            for alias in left:
                with suppress(Exception):  # the connection may be lost
                    connections[alias].connection.rollback()  # of a database in memory, which Django does not close
                connections[alias].close()
                connections[alias].connect()  # in no transaction
    if left:
        raise TransactionManagementError(
            f"The task left a transaction open on {left[0]!r}, which is rolled back. Commit it, or use atomic()."
        )
    return value


def _in_transaction() -> set[str]:
    """Return the aliases of the connections of this thread on which a transaction of a program is open."""
    return {
        each.alias
        for each in connections.all(initialized_only=True)
        if each.connection and (each.in_atomic_block or each.autocommit != each.settings_dict["AUTOCOMMIT"])
    }


def _complete(claim: Claim, value: Any) -> bool:
    claim.complete(result=value)
    return True


def _fail(claim: Claim, backend: Backend, text: str) -> FailedState | None:
    """Fail the attempt; return the state of the message then, or None if the claim is not held."""
    return _until_answered(claim, partial(claim.fail, text, retry=backend.retry))


def _until_answered(claim: Claim, finish: Callable[[], T]) -> T | None:
    """Finish the message, again after each transient error of the database; None if the lease was lost.

    The worker extends the lease meanwhile. If an answer was lost with its connection, the message may be finished
    already, and that too is a lost lease.
    """
    for failures in count(1):
        try:
            return finish()
        except LeaseLost as error:
            logger.error("%s", error)
            return None
        except TRANSIENT as error:
            pause = backoff(failures)
            logger.warning("%s: %s Trying again in %.1f s.", claim.queue.name, error, pause)
            sleep(pause)
    raise AssertionError("unreachable: the loop returns or raises")
