"""Children of a process that has used a database: what they push, and the results."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import BaseContext
from threading import Event, Thread
from typing import Any

import tablequeue
from tablequeue import Queue
from tests.crowd import PATIENCE

PUSHES = 50


class Child:
    """A process forked by `os.fork`, which runs a function when it is told to go on.

    The function gets another one, by which it stops and waits to be told again.
    """

    def __init__(self, work: Callable[[Callable[[], None]], list[int]]) -> None:
        self._answers, answers = os.pipe()
        orders, self._orders = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._orders)
            os.close(self._answers)

            def pause() -> None:
                os.write(answers, b".")
                os.read(orders, 1)

            os.read(orders, 1)
            try:
                said = json.dumps(work(pause))
            except tablequeue.TablequeueError as error:
                said = json.dumps(type(error).__name__)
            except BaseException:
                said = json.dumps(traceback.format_exc())
            os.write(answers, said.encode())
            os._exit(0)
        os.close(answers)
        os.close(orders)

    def go_on(self) -> None:
        os.write(self._orders, b".")

    def until_it_pauses(self) -> None:
        self.go_on()
        assert os.read(self._answers, 1) == b"."

    def result(self) -> Any:
        """Return the ids that it pushed, or the error."""
        with os.fdopen(self._answers, "rb") as answers:
            said = json.load(answers)
        os.close(self._orders)
        os.waitpid(self.pid, 0)
        return said


def push_some(queue: Queue) -> list[int]:
    return [queue.push(f"of {os.getpid()}") for _ in range(PUSHES)]


def pushes(queue: Queue) -> Callable[[Callable[[], None]], list[int]]:
    """Push, pause, and push again, in a child."""

    def work(pause: Callable[[], None]) -> list[int]:
        first = push_some(queue)
        pause()
        return first + push_some(queue)

    return work


def push_in_process(url: str, queue: str) -> list[int]:
    """Push in a fresh process, for start methods that do not fork."""
    with tablequeue.connect(url) as database:
        return push_some(database.queue(queue))


@contextmanager
def pushing(queue: Queue, threads: int) -> Iterator[list[int]]:
    """Run threads that push until the block ends. Yields their ids, which are complete after the block."""
    ids: list[int] = []
    done = Event()
    errors: list[BaseException] = []

    def push() -> None:
        try:
            while not done.is_set():
                ids.append(queue.push("of the parent"))
        except BaseException as error:
            errors.append(error)

    running = [Thread(target=push, daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield ids
    finally:
        done.set()
        for thread in running:
            thread.join(PATIENCE)
        assert errors == []


def method(name: str) -> BaseContext:
    context: BaseContext = multiprocessing.get_context(name)
    return context


if __name__ == "__main__":  # a parent that ends before its children, like that of a daemon
    url, ends = sys.argv[1:]
    database = tablequeue.connect(url)
    work = database.queue("work")
    work.push("of the parent")
    for _ in range(3):
        if os.fork() == 0:
            work.push("of a child")
            if ends == "normally":
                sys.exit()  # with everything that Python does at its exit
            os._exit(0)
    print("forked", flush=True)
