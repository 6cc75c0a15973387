"""The Celery application of benchmarks/celery.py: a task that notes its number and when it began."""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

import tablequeue.contrib.kombu  # noqa: F401  (it makes the transport known)

app = Celery("benchmark", broker=os.environ["BROKER"], set_as_current=False)
app.conf.update(task_ignore_result=True, worker_hijack_root_logger=False)


@app.task(name="note")
def note(number: int) -> None:
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(f"{number} {time.time()}\n")
