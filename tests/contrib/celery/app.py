"""A Celery application for tests, whose broker and results are in one database. The environment names it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from celery import Celery

from tablequeue.contrib.celery import Backend


def made(url: str) -> Celery:
    """Return an application with broker and results at a URL of tablequeue."""
    made = Celery("app", broker=f"tablequeue+{url}", backend=f"tablequeue+{url}", set_as_current=False)
    made.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        result_extended=True,
        broker_transport_options={"lease": 3},
        broker_connection_retry_on_startup=True,
        worker_hijack_root_logger=False,
    )
    return made


app = made(os.environ.get("TABLEQUEUE_CELERY_URL", "sqlite:///work.db"))


@app.task(name="add")
def add(left: int, right: int) -> int:
    return left + right


@app.task(name="total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(name="refuse")
def refuse(word: str) -> None:
    raise ValueError(word)


@app.task(name="note", ignore_result=True)
def note(results: Any, place: str) -> None:
    """Append a line to a file."""
    with Path(place).open("a") as file:
        file.write(f"{results}\n")


@app.task(name="split", bind=True)
def split(self: Any, number: int) -> Any:
    """Become two tasks, in the chord of which this task is a part."""
    return self.replace(add.s(number, number) | add.s(1))


class KilledBackend(Backend):
    """Kills the process that has kept the result of a part, and would count it now: the first time."""

    def on_chord_part_return(self, *args: Any, **options: Any) -> None:
        if not (place := Path(os.environ["KILLED"])).exists():
            place.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().on_chord_part_return(*args, **options)


if "KILLED" in os.environ:
    app._backend_cache = KilledBackend(app, url=os.environ["TABLEQUEUE_CELERY_URL"])
