"""The producers and consumers of the demo: processes that know nothing of each other but the queue."""

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
# Seconds an idle consumer waits before it looks again.
PAUSE = 0.05


@dataclass(frozen=True)
class Participant:
    """The name of a process, its database, and `done`: the number of messages that it has pushed or completed."""

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


def consume(participant: Participant, share: int, line: Connection | None, killed: Event, drained: Event) -> None:
    """Drain the queue in competition, until told that it is empty for good.

    The consumer with the line is the one to be killed: with `share` messages done it claims one more batch, says on
    the line how many messages it holds, and waits there. The others do not go beyond their share before that, so
    that there is something left for it to hold.
    """
    with tablequeue.connect(participant.url, name=participant.name) as database:
        queue = database.queue(QUEUE)
        while not drained.is_set():
            if participant.done.value >= share and line is None:
                killed.wait()
            batch = queue.pop_many(POP_BATCH)
            if not batch:
                drained.wait(PAUSE)
                continue
            if participant.done.value >= share and line is not None:
                line.send(len(batch))
                line.recv()
            try:
                queue.complete_many(batch)
                participant.done.value += len(batch)
            except tablequeue.LeaseLost as lost:
                # This process slept longer than its lease: those messages are another consumer's now.
                participant.done.value += len(batch) - len(lost.ids)
