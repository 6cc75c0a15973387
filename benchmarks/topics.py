"""Measure topics beside queues: pushes, drains, ten subscriptions, a held snapshot, and the end of old segments.

    python -m benchmarks.topics [--engines sqlite,postgresql] [--repeats 5] [--full]

Every commit is flushed, and each delivery is checked. The held snapshot and the segments are measured on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import quantiles
from time import perf_counter

import sqlalchemy as sa

import tablequeue
from benchmarks.contenders import Contender, check, closing, payloads
from benchmarks.contenders.bare import bare
from benchmarks.contenders.topic import COPY, QUEUE, Copy, Queue, Topic, drained
from benchmarks.contest import Step, contest
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved, rate

MESSAGES, FULL = 5_000, 20_000
SINGLY, SINGLY_FULL = 300, 1_000
CONTENDERS: Mapping[str, Sequence[Callable[[str], Contender]]] = {
    "sqlite": (Topic, Queue, *(partial(bare, batch=batch) for batch in (100, 1_000))),
    "postgresql": (Topic, Queue, *(partial(bare, batch=batch) for batch in (100, 1_000)), Copy),
}
BULK: Mapping[str, Step] = {
    "push": lambda contender, messages: contender.push_bulk(messages),
    "drain": lambda contender, messages: contender.drain(len(messages)),
}
ONE_BY_ONE: Mapping[str, Step] = {
    "push one by one": lambda contender, messages: contender.push(messages),
    "pop + complete": lambda contender, messages: contender.drain_singly(len(messages)),
}
AIMS = {
    ("postgresql", "push", QUEUE): 1.4,
    ("postgresql", "push", COPY): 0.8,
    ("postgresql", "drain", QUEUE): 3,
    ("postgresql", "drain", "bare driver by 100"): 5,
    ("sqlite", "drain", QUEUE): 3,
    **{(engine, what, QUEUE): 1 for engine in CONTENDERS for what in ONE_BY_ONE},
}
TEN, ONE = "10 subscriptions", "1 subscription"
# Seconds for which a snapshot is held, and the parts whose rates are compared; messages of a push in that time, and of
# each claim.
HELD, HELD_FULL, FIFTHS = 5, 60, 5
BLOCK, CLAIMED = 10_000, 100
# Messages of a log whose old segments are dropped, and claims in that time.
OLD, OLD_FULL = 200_000, 10_000_000
CLAIMS = 2_000
CONDITIONS = (
    f"Payloads of 100 bytes, one process; {FULL:,} messages in bulk, {SINGLY_FULL:,} one by one. A topic has one "
    "subscription, which pops 1,000 messages at a time and completes those before in the same call. `bare driver`: the "
    "statements of a queue, row by row. A snapshot is held for "
    f"{HELD_FULL} s, in which messages are pushed by {BLOCK:,} and popped by {CLAIMED}."
)


def aim(engine: str, what: str, contender: str) -> float | None:
    return AIMS.get((engine, what, contender))


def subscribed(engine: str, url: str, messages: Sequence[str], repeats: int) -> Iterator[Figure]:
    """Yield the rates of a bulk push into topics with one and with ten subscriptions."""
    with closing([Topic(url, 11), Topic(url, 2)]) as topics:
        works = {
            name: partial(rate, partial(topic.push_bulk, messages), len(messages))
            for name, topic in zip((TEN, ONE), topics, strict=True)
        }
        for name, rates in interleaved(works, repeats, f"{LABELS[engine]}, subscriptions").items():
            contender, aim = (OURS, None) if name == TEN else (name, 0.95)
            yield Figure(LABELS[engine], f"push with {TEN}", contender, "messages/s", rates, aim)


def held(url: str, seconds: float) -> tuple[float, float]:
    """Push and drain for so long under a held snapshot.

    Return the rate of the last fifth of the time over that of the first, and dead rows a claim.
    """
    with tablequeue.connect(url) as database:
        topic = database.create_topic("held", payload="text")
        subscription = topic.subscribe("all")
        block = payloads(BLOCK)
        pushes = 0

        def fifth() -> float:
            nonlocal pushes
            before, began = pushes, perf_counter()
            while perf_counter() < began + seconds / FIFTHS:
                topic.push_many(block)
                check(block, drained(subscription, BLOCK, CLAIMED))
                pushes += 1
            return (pushes - before) / (perf_counter() - began)

        with database.engine.connect().execution_options(isolation_level="REPEATABLE READ") as reader:
            reader.exec_driver_sql("select count(*) from tq_held")
            rates = [fifth() for _ in range(FIFTHS)]
        database.close()  # a session reports its dead rows at the latest when it ends
        dead = _dead_rows(database.engine)
        topic.drop()
        return rates[-1] / rates[0], dead / (pushes * BLOCK / CLAIMED)


def _dead_rows(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            "select sum(n_dead_tup) from pg_stat_user_tables where relname like 'tq_held%%'"
        )
        return int(found.scalar() or 0)


def trimmed(url: str, messages: int) -> float:
    """Return the 99th percentile of claims while old segments are dropped, over that of claims before."""
    with tablequeue.connect(url) as database:
        topic = database.create_topic("trimmed", payload="text", keep=60)
        late = topic.subscribe("late", start="end")
        old = datetime.now(UTC) - timedelta(seconds=120)
        for start in range(0, messages, 100_000):
            topic.push_many(payloads(min(100_000, messages - start)), now=old)
            topic.trim(now=old + timedelta(seconds=30 * (start // 100_000)))
        late.seek("end", force=True)
        topic.push_many(payloads(2 * CLAIMS))

        def claims() -> float:
            times = []
            for _ in range(CLAIMS):
                began = perf_counter()
                drained(late, 1, 1)
                times.append(perf_counter() - began)
            return quantiles(times, n=100)[98]

        before = claims()
        topic.trim()
        topic.trim()
        during = claims()
        topic.drop()
        return during / before


def main() -> None:
    arguments = chosen(parser(__doc__, list(CONTENDERS)))
    bulk = payloads(FULL if arguments.full else MESSAGES)
    singly = payloads(SINGLY_FULL if arguments.full else SINGLY)
    figures: list[Figure] = []
    for engine in arguments.engines:
        with PLACES[engine]() as url:
            with closing([make(url) for make in CONTENDERS[engine]]) as contenders:
                figures += contest(engine, contenders, BULK, bulk, arguments.repeats, aim)
                two = contenders[:2]
                figures += contest(engine, two, ONE_BY_ONE, singly, arguments.repeats, aim)
            figures += subscribed(engine, url, bulk, arguments.repeats)
            if engine == "postgresql":
                rounds = [held(url, HELD_FULL if arguments.full else HELD) for _ in range(arguments.repeats)]
                ratios, dead = zip(*rounds, strict=True)
                what = "a held snapshot: last fifth / first"
                figures.append(Figure(LABELS[engine], what, OURS, "ratio", ratios, 0.95))
                figures.append(Figure(LABELS[engine], "a held snapshot: dead rows", OURS, "rows/claim", dead))
                # One round in full: to push ten million messages takes a minute and more.
                slower = [trimmed(url, OLD_FULL)] if arguments.full else [trimmed(url, OLD) for _ in rounds]
                what = f"the end of {OLD_FULL:,} messages in segments: p99 of claims / before"
                figures.append(Figure(LABELS[engine], what, OURS, "ratio", slower))
    save("topics", "Topics", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
