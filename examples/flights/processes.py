"""The producers and consumers of the demo: processes that share nothing but the queue."""

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
# Seconds that an idle consumer waits before it pops again.
PAUSE = 0.05


@dataclass(frozen=True)
class Participant:
    """A process, its database, and the number of messages that it has pushed or completed (`done`)."""

    url: str
    name: str
    done: Synchronized[int]


def produce(participant: Participant, place: int, producers: int, total: int) -> None:
    """Push every `producers`-th block of flights, one JSON message a flight."""
    with tablequeue.connect(participant.url, name=participant.name) as database:
        queue = database.queue(QUEUE)
        block = []
        for flight in flights():
            if flight["n"] >= total:
                break
            if flight["n"] // PUSH_BATCH % producers != place:
                continue
            block.append(flight)
            if len(block) == PUSH_BATCH:
                participant.done.value += len(queue.push_many(block))
                block = []
        participant.done.value += len(queue.push_many(block))


def consume(participant: Participant, share: int, pipe: Connection | None, killed: Event, drained: Event) -> None:
    """Pop and complete messages until `drained` is set.

    The consumer with a `pipe` will be killed. After `share` messages it claims one more batch, sends the number of its
    messages through the pipe, and waits. The other consumers pause at their share until then, so that some messages are
    left for it.
    """
    with tablequeue.connect(participant.url, name=participant.name) as database:
        queue = database.queue(QUEUE)
        while not drained.is_set():
            if participant.done.value >= share and pipe is None:
                killed.wait()
            batch = queue.pop_many(POP_BATCH)
            if not batch:
                drained.wait(PAUSE)
                continue
            if participant.done.value >= share and pipe is not None:
                pipe.send(len(batch))
                pipe.recv()
            try:
                queue.complete_many(batch)
                participant.done.value += len(batch)
            except tablequeue.LeaseLost as lost:
                # This process slept longer than its lease, so another consumer has those messages.
                participant.done.value += len(batch) - len(lost.ids)
