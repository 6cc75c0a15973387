"""tablequeue against the same SQL statements sent by the bare driver, side by side in one run.

    python -m benchmarks.bare_driver [--repeats 5] [--messages 3000]

Both sides run the same texts (the project's own) on a table of their own, in turn, round after round; the figures
are medians, the ratio is the median of the rounds' ratios. Payloads are 100 bytes of text. Durability is each
engine's default: every commit is flushed to the disk. Each side counts what it was handed: all messages, each once.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

import tablequeue
from benchmarks.places import machine, postgresql_url, sqlite_url
from tablequeue.engines.base import Table as QueueTable

PAYLOAD = "x" * 100
BATCH = 100
Rates = dict[str, float]


class Library:
    """The public verbs."""

    def __init__(self, queue: tablequeue.Queue) -> None:
        self.push = lambda: queue.push(PAYLOAD)
        self.push_batch = lambda: queue.push_many([PAYLOAD] * BATCH)
        self._queue = queue

    def cycle(self) -> list[int]:
        message = self._queue.pop()
        assert message is not None
        message.complete()
        return [message.id]

    def cycle_batch(self) -> list[int]:
        batch = self._queue.pop_many(BATCH)
        self._queue.complete_many(batch)
        return [message.id for message in batch]


class Bare:
    """The same statements on the driver's cursor; `transaction` is what the engine needs around them."""

    def __init__(self, cursor: Any, table: QueueTable, transaction: bool) -> None:
        self._cursor = cursor
        self._push = table.statement("push")
        self._push_many = table.statement("push_many")
        self._claim = table.statement("claim")
        self._complete = table.statements("complete_keep")
        self._transaction = transaction
        self._low_water = 0
        self._common: dict[str, Any] = {"headers": None, "producer": "bare", "delay": None, "due": None, "now": None}
        self._common |= {"priority": 0, "group": None, "key": None}

    def push(self) -> None:
        with self._committed() as cursor:
            cursor.execute(self._push, {**self._common, "payload": PAYLOAD})
            cursor.fetchone()

    def push_batch(self) -> None:
        with self._committed() as cursor:
            if self._transaction:
                cursor.executemany(self._push_many, [{**self._common, "payload": PAYLOAD}] * BATCH)
            else:
                cursor.execute(self._push_many, {**self._common, "payloads": [PAYLOAD] * BATCH})
                cursor.fetchall()

    def cycle(self) -> list[int]:
        return self._cycle(1)

    def cycle_batch(self) -> list[int]:
        return self._cycle(BATCH)

    def _cycle(self, n: int) -> list[int]:
        token = secrets.token_hex(16)
        claim = {"n": n, "token": token, "consumer": "bare", "lease": 60.0, "now": None, "low_water": self._low_water}
        with self._committed() as cursor:
            cursor.execute(self._claim, claim)
            ids = [row[0] for row in cursor.fetchall()]
        self._low_water = max(ids)
        given: Any = str(ids) if self._transaction else ids
        with self._committed() as cursor:
            for statement in self._complete:
                cursor.execute(statement, {"token": token, "ids": given, "now": None})
            cursor.fetchall()
        return ids

    @contextmanager
    def _committed(self) -> Iterator[Any]:
        if self._transaction:
            self._cursor.execute("begin immediate")
        yield self._cursor
        if self._transaction:
            self._cursor.execute("commit")


def measure(side: Library | Bare, messages: int) -> Rates:
    """Messages a second of the four kinds of call; the queue is empty before and after."""
    batches = messages * 4 // BATCH
    return {
        "push, one by one": _rate(side.push, messages, 1),
        "pop + complete, one by one": _drain(side.cycle, messages, 1),
        f"push, by {BATCH}": _rate(side.push_batch, batches, BATCH),
        f"pop + complete, by {BATCH}": _drain(side.cycle_batch, batches, BATCH),
    }


def _rate(call: Callable[[], Any], times: int, size: int) -> float:
    started = perf_counter()
    for _ in range(times):
        call()
    return times * size / (perf_counter() - started)


def _drain(call: Callable[[], list[int]], times: int, size: int) -> float:
    seen: list[int] = []
    started = perf_counter()
    for _ in range(times):
        seen += call()
    rate = times * size / (perf_counter() - started)
    assert len(seen) == len(set(seen)) == times * size, "each message once"
    return rate


def compare(url: str, repeats: int, messages: int, label: str) -> list[tuple[str, str, float, float, float]]:
    with tablequeue.connect(url) as database, tablequeue.connect(url) as bare_database:
        library = Library(database.create_queue("library", payload="text"))
        bare_queue = bare_database.create_queue("bare", payload="text")
        proxy = bare_database.engine.raw_connection()
        proxy.detach()
        engine = bare_queue._desk.engine
        held = engine.hold(proxy.dbapi_connection)
        bare = Bare(held.cursor, bare_queue._desk.table, "push" not in engine.alone)
        rounds: list[tuple[Rates, Rates]] = []
        for i in track(range(repeats + 1), description=label, transient=True):
            # In turn, and the first of a round changes: neither side always has the warmer cache.
            first, second = (library, bare) if i % 2 else (bare, library)
            a, b = measure(first, messages), measure(second, messages)
            rounds.append((a, b) if first is library else (b, a))
        rounds = rounds[1:]
        held.close()
        return [
            (
                label,
                name,
                statistics.median(ours[name] for ours, _ in rounds),
                statistics.median(theirs[name] for _, theirs in rounds),
                statistics.median(ours[name] / theirs[name] for ours, theirs in rounds),
            )
            for name in rounds[0][0]
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--messages", type=int, default=3000)
    arguments = parser.parse_args()
    table = Table("engine", "messages a second", title=f"{machine()}; medians of {arguments.repeats} rounds")
    for name in ("tablequeue", "bare driver", "ratio"):
        table.add_column(name, justify="right")
    for label, place in (("SQLite", sqlite_url), ("PostgreSQL", postgresql_url)):
        with place() as url:
            for _, name, ours, theirs, ratio in compare(url, arguments.repeats, arguments.messages, label):
                table.add_row(label, name, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
