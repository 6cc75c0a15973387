"""Processes that move a queue to another database, up to a step at which they die."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection

from tests.crashes import Steps, open_stepping
from tests.servers import Place


def move_all(source: Place, target: Place, steps: Steps, history: bool = True) -> None:
    """Move the queue, with its history, by connections that have steps."""
    first, second = (open_stepping(place, steps) for place in (source, target))
    steps.armed = True
    for _ in first.queue("work").move_batches(to=second.queue("work"), history=history):
        steps.step("a batch was moved")
    steps.step("returned")
    steps.armed = False


def stop_in_move_between(source: Place, target: Place, number: int, history: bool, pipe: Connection) -> None:
    """Move up to this step, report it, and stay there until killed. A move that ends before says so."""
    move_all(source, target, Steps(_standing_at(number, pipe)), history)
    pipe.send("ended")
    pipe.recv()


def _standing_at(number: int, pipe: Connection) -> Callable[[int, str], None]:
    def reached(count: int, words: str) -> None:
        if count == number:
            pipe.send(words)
            pipe.recv()

    return reached
