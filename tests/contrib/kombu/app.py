"""A Celery application for tests: its tasks append a line to a file. The environment names the broker and the file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.exceptions import Reject

import tablequeue.contrib.kombu  # noqa: F401  (it makes the transport known)

app = Celery("app", broker=os.environ["BROKER"], set_as_current=False)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=2,
    broker_transport_options={"lease": 3},
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


def note(*words: Any) -> None:
    """Append a line, whole."""
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


@app.task(name="work")
def work(number: int, seconds: float = 0.0) -> None:
    time.sleep(seconds)
    note(number)


@app.task(name="again", bind=True, max_retries=2)
def again(self: Any, number: int) -> None:
    if self.request.retries < 2:
        raise self.retry(countdown=0.2)
    note(number)


@app.task(name="stamp")
def stamp(number: int) -> None:
    note(number, time.time())


@app.task(name="refuse")
def refuse(reason: str) -> None:
    raise Reject(reason, requeue=False)
