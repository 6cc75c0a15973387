"""What the tests of workers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from time import monotonic, sleep
from typing import Any

from tablequeue import Database
from tablequeue.worker import Worker

# Seconds after which what does not come has failed; it takes milliseconds.
PATIENCE = 60


@contextmanager
def working(worker: Worker, database: Database, **options: Any) -> Iterator[Thread]:
    """A worker at work in a thread, stopped at the end of the block."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            worker.run(database, **options)
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        worker.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive(), "the worker does not stop"
    if errors:
        raise errors[0]


def until(holds: Callable[[], Any], what: str) -> None:
    """Look until it holds: for what the database, or another process, tells nobody."""
    deadline = monotonic() + PATIENCE
    while not holds():
        assert monotonic() < deadline, f"in vain: {what}"
        sleep(0.002)
