"""Compare tablequeue with pgmq, and with bare statements without a history, on PostgreSQL. Every commit is flushed.

    python -m benchmarks.side_by_side [--parts bulk,single,8,64] [--repeats 5] [--full]

In bulk, one by one, and with 8 and 64 processes, each of which pushes, pops and completes one message after the other.
A machine that does other work changes the rates; the time of the server's sessions on a processor hardly changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter

import sqlalchemy as sa

from benchmarks.contenders import Contender, check, closing, payloads
from benchmarks.contenders.bare import bare
from benchmarks.contenders.ours import Tablequeue
from benchmarks.contenders.pgmq_ import Pgmq, PgmqArchive
from benchmarks.contention import crowd
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved

Make = Callable[[str], Contender]
Found = dict[str, float]

MESSAGES, FULL = 5_000, 20_000
SINGLE, FULL_SINGLE = 200, 1_000
SECONDS, FULL_SECONDS = 2, 4
# Bare statements by so many messages in bulk, and one by one elsewhere.
BATCH = 1_000
PROCESSES = {"8": 8, "64": 64}
PARTS = ("bulk", "single", *PROCESSES)
BARE = "bare statements, no history"
# The ratios that tablequeue must reach: to bare statements, and to pgmq without its archive.
AIMS: Mapping[str, Mapping[str, float]] = {
    "drain": {BARE: 0.9, Pgmq.name: 1.6},
    "pop + complete": {Pgmq.name: 1},
    **{f"{number} processes": {Pgmq.name: 1.2} for number in PROCESSES},
}
# What tablequeue itself must reach, in microseconds a message.
OWN = {"drain: CPU of the server": 14}
CONDITIONS = (
    f"PostgreSQL; payloads of 100 bytes, {FULL:,} messages in bulk. All pop {BATCH:,} messages at a time in bulk, and "
    "tablequeue completes those before in the same call. Bare statements are the same without any code around them, "
    "and without the history. pgmq deletes its messages, or moves them to its archive. `CPU of the server` is the time "
    "that the sessions were on a processor. Every commit is flushed."
)


def bare_by(url: str, batch: int) -> Contender:
    made = bare(url, batch, history="none")
    made.name = BARE
    return made


class Sessions:
    """Tells how long the sessions of a contender have been on a processor."""

    def __init__(self, url: str) -> None:
        self._connection = sa.create_engine(url, isolation_level="AUTOCOMMIT").connect()

    def microseconds(self) -> float:
        others = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        pids = self._connection.exec_driver_sql(others).scalars().all()
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1000

    def close(self) -> None:
        self._connection.close()


def measured(sessions: Sessions, steps: Mapping[str, Callable[[], list[str] | None]], pushed: Sequence[str]) -> Found:
    """Run the steps. Return the messages a second of each and of all together, and the microseconds of the server."""
    found: Found = {}
    total = 0.0
    for what, step in steps.items():
        before, began = sessions.microseconds(), perf_counter()
        delivered = step()
        took = perf_counter() - began
        total += took
        found[what] = len(pushed) / took
        found[f"{what}: CPU of the server"] = (sessions.microseconds() - before) / len(pushed)
        if delivered is not None:
            check(pushed, delivered)
    return found | {"end to end": len(pushed) / total}


def in_bulk(sessions: Sessions, contender: Contender, messages: Sequence[str]) -> Found:
    steps = {"push": lambda: contender.push_bulk(messages), "drain": lambda: contender.drain(len(messages))}
    return measured(sessions, steps, messages)


def singly(sessions: Sessions, contender: Contender, messages: Sequence[str]) -> Found:
    steps = {
        "push, one by one": lambda: contender.push(messages),
        "pop + complete": lambda: contender.drain_singly(len(messages)),
    }
    found = measured(sessions, steps, messages)
    del found["end to end"]
    return found


def together(make: Make, url: str, processes: int, seconds: float) -> Found:
    return {f"{processes} processes": crowd(make, url, processes, seconds).rate}


def unit(what: str) -> str:
    if what.endswith("CPU of the server"):
        return "µs/message"
    return "cycles/s" if what.endswith("processes") else "messages/s"


def figures(rounds: Mapping[str, Sequence[Found]]) -> Iterator[Figure]:
    for what in next(iter(rounds.values()))[0]:
        for name, found in rounds.items():
            aim = OWN.get(what) if name == OURS else AIMS.get(what, {}).get(name)
            yield Figure(LABELS["postgresql"], what, name, unit(what), [each[what] for each in found], aim)


def works(
    part: str, url: str, contenders: Sequence[Contender], sessions: Sessions, full: bool
) -> dict[str, Callable[[], Found]]:
    """Return what each contender does in a part of the comparison."""
    if part in PROCESSES:
        seconds = FULL_SECONDS if full else SECONDS
        makes: Mapping[str, Make] = {
            OURS: Tablequeue, BARE: partial(bare_by, batch=1), Pgmq.name: Pgmq, PgmqArchive.name: PgmqArchive,
        }  # fmt: skip
        return {name: partial(together, make, url, PROCESSES[part], seconds) for name, make in makes.items()}
    if part == "bulk":
        messages = payloads(FULL if full else MESSAGES)
        return {one.name: partial(in_bulk, sessions, one, messages) for one in contenders}
    messages = payloads(FULL_SINGLE if full else SINGLE)
    return {one.name: partial(singly, sessions, one, messages) for one in contenders}


def main() -> None:
    options = parser(__doc__, ["postgresql"])
    options.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=",".join(PARTS))
    arguments = chosen(options)
    found: list[Figure] = []
    with PLACES["postgresql"]() as url, ExitStack() as stack:
        sessions = Sessions(url)
        stack.callback(sessions.close)
        for part in arguments.parts:
            batch = BATCH if part == "bulk" else 1
            makes: Sequence[Make] = (Tablequeue, partial(bare_by, batch=batch), Pgmq, PgmqArchive)
            with closing([make(url) for make in makes]) as contenders:
                label = f"{LABELS['postgresql']}, {part}"
                found += figures(
                    interleaved(works(part, url, contenders, sessions, arguments.full), arguments.repeats, label)
                )
    keep = arguments.full and set(arguments.parts) == set(PARTS)
    save("side_by_side", "Beside pgmq and bare statements", CONDITIONS, found, keep=keep)


if __name__ == "__main__":
    main()
