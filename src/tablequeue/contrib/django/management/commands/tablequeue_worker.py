"""`manage.py tablequeue_worker`: run the tasks of a backend."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError
from threading import current_thread
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils.autoreload import run_with_reloader

import tablequeue
from tablequeue.contrib.django.backend import Backend
from tablequeue.contrib.django.compat import LOGGER, InvalidTaskBackend, task_backends
from tablequeue.contrib.django.database import url_of
from tablequeue.contrib.django.running import handle
from tablequeue.errors import QueueNotFound, TablequeueError
from tablequeue.worker import Handler, Worker

logger = logging.getLogger("tablequeue.django")

LEVELS = {0: logging.CRITICAL, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}
# Seconds that running tasks have to end before the process is started again with other code.
RELOAD_TIMEOUT = 5.0


class Command(BaseCommand):
    help = (
        "Run the tasks of a backend, until SIGTERM or Ctrl-C. At the first signal running tasks end, and others stay "
        "in the queue; the second signal ends the process at once. Tasks of a killed worker are tried again when its "
        "lease is over."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--backend", default="default", type=_backend, help="Its alias in TASKS (default: default).")
        add("--queue", action="append", help="A queue of the backend; may be repeated (default: all of them).")
        add("--max", type=_number, default=8, help="Tasks that run at once (default: 8).")
        add("--processes", action="store_true", help="Run each task in a process of its own, not in a thread.")
        add("--drain", action="store_true", help="End when nothing is ready in any of the queues.")
        add(
            "--shutdown-timeout", type=float, default=30.0, help="Seconds that running tasks have to end (default: 30)."
        )
        add("--worker-id", help="The name of this worker in results (default: host:pid).")
        add("--reload", action="store_true", default=None, help="Start again when code changes (default: DEBUG).")
        add("--no-reload", action="store_false", dest="reload", help="Do not start again when code changes.")

    def handle(
        self,
        *,
        backend: Backend,
        queue: list[str] | None,
        max: int,
        processes: bool,
        drain: bool,
        shutdown_timeout: float,
        worker_id: str | None,
        reload: bool | None,
        verbosity: int,
        **options: Any,
    ) -> None:
        self._log(verbosity)
        names = queue or sorted(backend.queues)
        if unknown := sorted({*names} - backend.queues):
            raise CommandError(
                f"The backend {backend.alias!r} has no queue {unknown[0]!r}. Name one of: {', '.join(backend.queues)}."
            )
        reloads = (settings.DEBUG if reload is None else reload) and not drain
        try:
            worker = Worker(maximum=max, shutdown_timeout=RELOAD_TIMEOUT if reloads else shutdown_timeout)
            for name in names:
                worker.add(Handler(backend.table_queue(name), handle, processes=processes))
            if reloads:
                run_with_reloader(_run_until_exit, worker, backend, worker_id)
            else:
                _run(worker, backend, worker_id, drain)
        except TablequeueError as error:
            raise CommandError(str(error)) from error
        if worker.abandoned:
            # The thread of a task would keep the process alive.
            sys.stdout.flush()
            os._exit(0)

    def _log(self, verbosity: int) -> None:
        for name in (LOGGER, "tablequeue"):
            log = logging.getLogger(name)
            log.setLevel(LEVELS[verbosity])
            if not log.hasHandlers():
                log.addHandler(logging.StreamHandler(self.stdout))


def _run(worker: Worker, backend: Backend, worker_id: str | None, drain: bool = False) -> None:
    with tablequeue.connect(url_of(backend.database), name=worker_id) as database:
        connections.close_all()  # the connections that the checks and the URL have opened
        logger.info("worker of the queues %s", ", ".join(worker.handlers))
        try:
            worker.run(database, drain=drain)
        except QueueNotFound as error:
            raise QueueNotFound(error.cause, "Run `manage.py migrate`.") from None
    logger.info("worker ended")


def _run_until_exit(worker: Worker, backend: Backend, worker_id: str | None) -> None:
    """Run in a thread of the process that Django's reloader ends. Before it ends, shut down gracefully."""
    runs = current_thread()

    @atexit.register
    def stop() -> None:
        worker.stop()
        runs.join(2 * RELOAD_TIMEOUT)

    _run(worker, backend, worker_id)


def _backend(alias: str) -> Backend:
    try:
        backend = task_backends[alias]
    except InvalidTaskBackend as error:
        raise ArgumentTypeError(str(error)) from None
    if not isinstance(backend, Backend):
        raise ArgumentTypeError(f"The backend {alias!r} is not one of tablequeue.")
    return backend


def _number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError("Give a whole number from 1 on.")
    return number
