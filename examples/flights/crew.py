"""The writers and readers of the demo: processes that know nothing of each other but the queue."""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event

import tablequeue
from examples.flights.data import flights

QUEUE = "flights"
PUSH_BATCH = 2000
POP_BATCH = 500
# Seconds an idle reader waits before it looks again.
PAUSE = 0.05


@dataclass(frozen=True)
class Post:
    """What a member of the crew is given. `done` counts its pushed, or completed, messages."""

    url: str
    name: str
    done: Synchronized[int]


def write(post: Post, place: int, writers: int, total: int) -> None:
    """Push every `writers`-th block of flights, one JSON message a flight."""
    with tablequeue.connect(post.url, name=post.name) as database:
        queue = database.queue(QUEUE)
        block = []
        for flight in flights():
            if flight["n"] >= total:
                break
            if flight["n"] // PUSH_BATCH % writers != place:
                continue
            block.append(flight)
            if len(block) == PUSH_BATCH:
                post.done.value += len(queue.push_many(block))
                block = []
        post.done.value += len(queue.push_many(block))


def read(post: Post, share: int, line: Connection | None, killed: Event, drained: Event) -> None:
    """Drain the queue in competition, until told that it is empty for good.

    The reader with the line is the one to be killed: with `share` messages done it claims one more batch, says on
    the line how many messages it holds, and waits there. The others do not go beyond their share before that, so
    that there is something left for it to hold.
    """
    with tablequeue.connect(post.url, name=post.name) as database:
        queue = database.queue(QUEUE)
        while not drained.is_set():
            if post.done.value >= share and line is None:
                killed.wait()
            batch = queue.pop_many(POP_BATCH)
            if not batch:
                drained.wait(PAUSE)
                continue
            if post.done.value >= share and line is not None:
                line.send(len(batch))
                line.recv()
            try:
                queue.complete_many(batch)
                post.done.value += len(batch)
            except tablequeue.LeaseLost as lost:
                # This process slept longer than its lease: those messages are another reader's now.
                post.done.value += len(batch) - len(lost.ids)
