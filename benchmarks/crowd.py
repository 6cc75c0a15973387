"""The throughput of 10 to 200 producers and as many consumers at the same time, each with its own connections.

    python -m benchmarks.crowd [--engines postgresql,mariadb] [--repeats 5] [--full]

Runs on PostgreSQL by default. Each producer pushes its share of the messages one by one, while the consumers wait for
them, and pop and complete them one by one. They are threads of ten processes, which are warm when the clock starts. It
stops when the last message is completed. No thread may get an error, and each message is delivered once.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from time import perf_counter

from tests import crowd
from tests.crowd import Consumer, Crowd, Producer, answer, produce_and_consume, started
from tests.servers import Place

import tablequeue
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved
from tablequeue.ext import waiter_of

SIZES = (10, 50, 200)
PROCESSES = 10
# A full run has enough messages to keep all threads busy most of the time. The first and the last tenth of 6,000
# messages take 200 of each one and a half to two times as long as 10 of each. The others take the same time.
MESSAGES, FULL = 2_000, 20_000
AIM = 0.8
CONDITIONS = (
    f"{FULL:,} messages of a few bytes, which {PROCESSES} processes push, pop and complete one by one. Every commit is "
    "flushed."
)


class Warm(Place):
    """A place whose databases are warm: each has pushed, popped and completed a message, and a consumer has waited."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Warm, (self.url, self.schema))

    def open(self, name: str | None = None) -> tablequeue.Database:
        database = super().open(name)
        queue = database.queue("crowd")
        queue.push("warm")
        while (message := queue.pop()) is None:
            pass  # another thread has just claimed it, and left another message
        message.complete()
        if name is not None and name.startswith("consumer"):
            with waiter_of(queue) as waiter:
                waiter.wait(0)
        return database


def rate(url: str, size: int, messages: int) -> float:
    """Return the messages a second, from the first push to the last completion."""
    members = Crowd(PROCESSES, 2 * size // PROCESSES, messages // size)
    with tablequeue.connect(url) as database:
        queue = database.create_queue("crowd", payload="text")
        barrier = crowd.processes.Barrier(PROCESSES + 1, timeout=crowd.PATIENCE)
        done = crowd.processes.Semaphore(0)
        place = Warm(url, None)
        with started(PROCESSES, produce_and_consume, lambda number: (place, members, number, barrier, done)) as pipes:
            barrier.wait()
            began = perf_counter()
            for _ in range(members.total):
                done.acquire()
            took = perf_counter() - began
            queue.push_many([crowd.STOP] * size)
            check([each for pipe in pipes for each in answer(pipe)], members)
        queue.drop()
    return members.total / took


def check(members: list[Consumer | Producer | Exception], crowd: Crowd) -> None:
    errors = [each for each in members if isinstance(each, Exception)]
    assert not errors, f"{len(errors)} members got an error: {errors[0]!r}"
    pushed = {id for each in members if isinstance(each, Producer) for id in each.pushed}
    popped = Counter(id for each in members if isinstance(each, Consumer) for id, *_ in each.messages)
    assert len(pushed) == crowd.total, "no id is given twice"
    assert popped == Counter(pushed), "each message once"


def main() -> None:
    arguments = chosen(parser(__doc__, ["postgresql"]))
    messages = FULL if arguments.full else MESSAGES
    figures = []
    for engine in arguments.engines:
        with PLACES[engine]() as url:
            works = {f"{size} of each": partial(rate, url, size, messages) for size in SIZES}
            found = interleaved(works, arguments.repeats, LABELS[engine])
        figures += [Figure(LABELS[engine], what, OURS, "messages/s", rates) for what, rates in found.items()]
        *smaller, largest = found.values()
        ratios = [one / max(others) for one, *others in zip(largest, *smaller, strict=True)]
        figures.append(Figure(LABELS[engine], "the largest crowd / the best smaller one", OURS, "ratio", ratios, AIM))
    save("crowd", "Crowds", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
