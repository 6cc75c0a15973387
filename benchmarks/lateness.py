"""Measure how late a message is that becomes ready while other messages keep all consumers busy.

    python -m benchmarks.lateness [--engines sqlite,postgresql,mariadb] [--repeats 3] [--full]

Three consumers, each in a process of its own, pop and complete in batches without a pause, at some distance from the
server. A producer ensures that they never find the queue empty. At the same time, and rarely enough for them to keep
up, messages become due, are released by another process, are abandoned until their lease ends, or are pushed in
transactions that commit late. The figure is the longest time in a round from that moment until a consumer has the
message.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import tablequeue
from benchmarks.distance import far_away
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved
from tablequeue import Queue
from tablequeue.ext import context_of

CONSUMERS = 3
SECONDS, FULL_SECONDS, EVENTS_EACH = 10.0, 20.0, 6
# Seconds between two events of one kind, and round trips that are added: one by one, a consumer needs up to ten for a
# message.
PAUSE, MORE_ROUND_TRIPS = 0.25, 20
# Seconds from a push to its due time, from a claim to the end of its lease, and for which a transaction stays open.
AHEAD = 0.5
ROUND_TRIPS = {"sqlite": (0.0,), "postgresql": (0.0, 0.05, 0.2), "mariadb": (0.0, 0.05, 0.2)}
BATCHES = (1, 100)
AIM = 2.0
CONDITIONS = (
    f"{CONSUMERS} consumers, each in a process of its own. A figure is the longest delay of its kind in a round. Every "
    "commit is flushed."
)

_processes = multiprocessing.get_context("spawn")
Late = dict[int, float]
"""The time at which each message became available, by its id."""


def due(queue: Queue, late: Late) -> None:
    id = queue.push("due", delay=AHEAD)
    late[id] = monotonic() + AHEAD


def released(queue: Queue, late: Late) -> None:
    message = queue.pop()
    if message is not None:
        sleep(AHEAD)
        message.release()
        late[message.id] = monotonic()


def abandoned(queue: Queue, late: Late) -> None:
    message = queue.pop(lease=AHEAD)
    if message is not None:
        late[message.id] = monotonic() + AHEAD


def committed_late(queue: Queue, late: Late) -> None:
    engine = context_of(queue).runner.sa_engine
    with engine.begin() as connection:
        id = queue.push("late", connection=connection)
        sleep(0 if engine.dialect.name == "sqlite" else AHEAD)  # on SQLite nobody else could write in the meantime
    late[id] = monotonic()


EVENTS: dict[str, Callable[[Queue, Late], None]] = {
    "due": due,
    "released": released,
    "abandoned": abandoned,
    "committed late": committed_late,
}


def consume(url: str, batch: int, pipe: Connection) -> None:
    """Pop and complete until told to stop. Sends the time at which each message was last claimed."""
    with tablequeue.connect(url) as database:
        queue = database.queue("work")
        had: dict[int, float] = {}
        pipe.send("ready")
        claims = queue.pop_many(batch)
        while not pipe.poll():
            now = monotonic()
            had.update((claim.id, now) for claim in claims)
            claims = queue.pop_many(batch, completing=claims)
        pipe.send(had)


@contextmanager
def in_thread(step: Callable[[], None], pause: float) -> Iterator[None]:
    """Repeat the step until the block ends."""
    done = Event()

    def run() -> None:
        while not done.wait(pause):
            step()

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def round_of(url: str, round_trip: float, batch: int, seconds: float) -> dict[str, float]:
    """Return the longest delay of each kind."""
    with tablequeue.connect(url) as database, far_away(url, round_trip) as there:
        queue = database.create_queue("work", payload="text", lease=600)
        pipes = [_processes.Pipe() for _ in range(CONSUMERS)]
        crowd = [_processes.Process(target=consume, args=(there, batch, theirs)) for _, theirs in pipes]
        for process in crowd:
            process.start()
        waiting = 4 * CONSUMERS * batch
        queue.push_many(["load"] * waiting)
        for ours, _ in pipes:
            ours.recv()
        late: dict[str, Late] = {kind: {} for kind in EVENTS}

        def refill() -> None:
            missing = waiting - queue.stats().ready
            if missing > 0:
                queue.push_many(["load"] * missing)

        with in_thread(refill, 0.002):
            pause = PAUSE + MORE_ROUND_TRIPS * round_trip
            with ExitStack() as events:
                for kind, event in EVENTS.items():
                    events.enter_context(in_thread(partial(event, database.queue("work"), late[kind]), pause))
                sleep(max(seconds, EVENTS_EACH * pause))
            sleep(3 * AIM)
        for ours, _ in pipes:
            ours.send("stop")
        had: dict[int, float] = {}
        for ours, _ in pipes:
            for id, time in ours.recv().items():
                had[id] = max(time, had.get(id, 0.0))
        for process in crowd:
            process.join()
        queue.drop()
        return {
            kind: max((_delay(had, id, since) for id, since in of.items()), default=0.0) for kind, of in late.items()
        }


def _delay(had: dict[int, Any], id: int, since: float) -> float:
    # A message that no consumer got until the end is at least this late.
    return max(0.0, had[id] - since) if id in had else 3 * AIM


def main() -> None:
    arguments = chosen(parser(__doc__, list(PLACES)), full_repeats=3)
    seconds = FULL_SECONDS if arguments.full else SECONDS
    figures: list[Figure] = []
    for engine in arguments.engines:
        with PLACES[engine]() as url:
            for round_trip in ROUND_TRIPS[engine]:
                for batch in BATCHES:
                    label = f"{round_trip * 1000:.0f} ms away, by {batch}"
                    work = partial(round_of, url, round_trip, batch, seconds)
                    rounds = interleaved({OURS: work}, arguments.repeats, f"{LABELS[engine]}, {label}")[OURS]
                    for kind in EVENTS:
                        delays = [delays[kind] for delays in rounds]
                        figures.append(Figure(LABELS[engine], f"{label}: {kind}", OURS, "s", delays, AIM))
    save("lateness", "How late a message is", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
