"""The Celery application of benchmarks/celery.py: a task that notes its number and its start, and two with results."""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

import tablequeue.contrib.celery  # noqa: F401  (it makes the transport known)

app = Celery("benchmark", broker=os.environ["BROKER"], backend=os.environ.get("BACKEND"), set_as_current=False)
app.conf.update(worker_hijack_root_logger=False)


@app.task(name="add")
def add(left: int, right: int) -> int:
    return left + right


@app.task(name="total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(name="note", ignore_result=True)
def note(number: int) -> None:
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(f"{number} {time.time()}\n")
