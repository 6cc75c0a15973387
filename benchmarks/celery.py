"""Celery on tablequeue, on Redis and on kombu's own transport for SQL: rates, latency, and what an idle worker costs.

    python -m benchmarks.celery [--tasks 2000] [--repeats 3] [--of tasks results] [--contenders ...]

It needs `celery[redis]`, Debian's redis-server and PostgreSQL's server; tests/contrib/kombu/others.py makes an
environment with the packages. A worker has four processes and Celery's own settings. Tasks are sent one by one by one
process, then a worker is started that runs them; the rate is that between a tenth and nine tenths of them. For the
latency there is a task every 50 ms, and the worker waits for each. What an idle worker asks is counted by the server:
transactions of PostgreSQL, commands of Redis. Every commit is flushed, except by the Redis that keeps everything in
memory.

Results are kept by the broker's system, and read by one process: the seconds of 1,000 tasks, each sent alone, until all
results are there, and those of a chord of 20, the median of 20. The table ends with the ratios to Redis, each that of
two contenders in the same round.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa
from tests.servers import free_port, postgresql_bin, private_postgresql

LATENCIES, PAUSE = 60, 0.05
SETTLE, COUNTED = 15.0, 60.0
PATIENCE = 180.0
CONTENDERS = (
    "tablequeue, PostgreSQL",
    "tablequeue, SQLite",
    "Redis, in memory",
    "Redis, flushed",
    "kombu sqla, PostgreSQL",
)
RESULTS, CHORD, CHORDS = 1000, 20, 20
# Which contender is divided by which in the ratios.
RATIOS = [(ours, theirs) for ours in CONTENDERS[:2] for theirs in CONTENDERS[2:4]]
READ = f"""
import statistics, time
from celery import chord
from benchmarks.celery_app import add, total

def chord_of_some():
    began = time.time()
    header = [add.s(number, 1) for number in range({CHORD})]
    assert chord(header, total.s())().get(timeout=60) == sum(range(1, {CHORD} + 1))
    return time.time() - began

for _ in range(5):  # connects, declares, and starts the pool
    chord_of_some()
chords = [chord_of_some() for _ in range({CHORDS})]
began = time.time()
results = [add.delay(number, 1) for number in range({RESULTS})]
assert sum(result.get(timeout=60) for result in results) == sum(range(1, {RESULTS} + 1))
print(time.time() - began, statistics.median(chords))
"""
SEND = """
import sys, time
from benchmarks.celery_app import app, note
tasks, pause = int(sys.argv[1]), float(sys.argv[2])
note.apply_async((-1,))  # connects, and declares
began = time.time()
times = []
for number in range(tasks):
    times.append(time.time())
    note.apply_async((number,))
    time.sleep(pause)
print(tasks / (time.time() - began), *times)
"""


@contextmanager
def redis(*options: str) -> Iterator[str]:
    port = free_port()
    server = subprocess.Popen(["redis-server", "--port", str(port), *options], stdout=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.terminate()
        server.wait()


@contextmanager
def broker(name: str, place: Path) -> Iterator[tuple[str, Callable[[], int] | None]]:
    """Yield the URL of a new broker, and a function that counts what was asked of it."""
    with ExitStack() as stack:
        if "Redis" in name:
            flushed = ("--appendonly", "yes", "--appendfsync", "always", "--dir", str(place))
            url = stack.enter_context(redis(*(flushed if "flushed" in name else ("--save", ""))))
            yield url, lambda: _commands(url)
        elif "SQLite" in name:
            yield f"tablequeue+sqlite:///{place}/work.db", None
        else:
            programs = postgresql_bin()
            assert programs is not None, "install PostgreSQL"
            url = stack.enter_context(private_postgresql(programs, flushes=True))
            yield f"{'sqla' if 'sqla' in name else 'tablequeue'}+{url}", lambda: _transactions(url)


def _commands(url: str) -> int:
    from redis import Redis

    with Redis.from_url(url) as client:
        return int(client.info("stats")["total_commands_processed"])


def _transactions(url: str) -> int:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        time.sleep(1.5)  # sessions report once a second
        asked = "select sum(xact_commit + xact_rollback) from pg_stat_database where datname = current_database()"
        return int(connection.execute(sa.text(asked)).scalar() or 0)


@contextmanager
def worker() -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "benchmarks.celery_app",
        "worker",
        "-c",
        "4",
        "--loglevel",
        "error",
    ]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        running.terminate()
        running.wait()


def sent(tasks: int, pause: float) -> list[float]:
    """Send tasks. Return the rate, and when each was sent."""
    command = [sys.executable, "-c", SEND, str(tasks), str(pause)]
    return [*map(float, subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split())]


def noted(notes: Path, wanted: int) -> dict[int, float]:
    """Wait for the tasks; return when each began. Each must have run once."""
    end = time.monotonic() + PATIENCE
    while not notes.exists() or notes.read_bytes().count(b"\n") < wanted:
        assert time.monotonic() < end, "the tasks have not run"
        time.sleep(0.05)
    pairs = [line.split() for line in notes.read_text().splitlines()]
    assert len({number for number, _ in pairs}) == len(pairs) == wanted, "a task ran twice"
    return {int(number): float(at) for number, at in pairs if number != "-1"}


def figures_of_results(name: str) -> dict[str, float]:
    with TemporaryDirectory() as folder, broker(name, Path(folder)) as (url, _):
        os.environ |= {"BROKER": url, "BACKEND": url}
        with worker():
            read = [sys.executable, "-c", READ]
            seconds, chord = subprocess.run(read, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    del os.environ["BACKEND"]
    return {f"{RESULTS} results, ms": 1000 * float(seconds), f"chord of {CHORD}, ms": 1000 * float(chord)}


def figures(name: str, tasks: int, idle: bool) -> dict[str, float]:
    with TemporaryDirectory() as folder, broker(name, Path(folder)) as (url, count):
        notes = Path(folder) / "notes"
        os.environ |= {"BROKER": url, "NOTES": str(notes)}
        rate, *_ = sent(tasks, 0.0)
        with worker():
            began = sorted(noted(notes, tasks + 1).values())
            low, high = len(began) // 10, len(began) * 9 // 10
            found: dict[str, Any] = {"sent/s": rate, "tasks/s": (high - low) / (began[high] - began[low])}
            notes.unlink()
            _, *times = sent(LATENCIES, PAUSE)
            at = noted(notes, LATENCIES + 1)
            waits = sorted(1000 * (at[number] - times[number]) for number in at)
            found |= {"ms, median": statistics.median(waits), "ms, 95th": waits[len(waits) * 95 // 100]}
            if idle and count is not None:
                time.sleep(SETTLE)
                before = count()
                time.sleep(COUNTED)
                found["asked/min when idle"] = (count() - before) * 60 / COUNTED
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--of", nargs="*", default=("tasks", "results"), choices=("tasks", "results"))
    parser.add_argument("--contenders", nargs="*", default=CONTENDERS, choices=CONTENDERS)
    options = parser.parse_args()
    rounds: dict[str, list[dict[str, float]]] = defaultdict(list)
    for number in range(options.repeats):
        for name in random.sample(options.contenders, len(options.contenders)):
            found = figures(name, options.tasks, idle=not number) if "tasks" in options.of else {}
            if "results" in options.of and "sqla" not in name:
                found |= figures_of_results(name)
            rounds[name].append(found)
            print(name, {what: round(value, 1) for what, value in rounds[name][-1].items()}, flush=True)
    columns = [*rounds[options.contenders[0]][0]]
    print("\n| broker |", " | ".join(columns), "|\n|---|" + "---:|" * len(columns))
    for name in options.contenders:
        cells = [[one[what] for one in rounds[name] if what in one] for what in columns]
        print(f"| {name} |", " | ".join(f"{statistics.median(cell):,.0f}" if cell else "" for cell in cells), "|")
    for ours, theirs in RATIOS:
        pairs = [*zip(rounds[ours], rounds[theirs], strict=True)] if {ours, theirs} <= rounds.keys() else []
        cells = [[one[what] / other[what] for one, other in pairs if what in one and what in other] for what in columns]
        if pairs:
            ratios = " | ".join(f"{statistics.median(cell):.2f}" if cell else "" for cell in cells)
            print(f"| {ours} : {theirs} |", ratios, "|")


if __name__ == "__main__":
    main()
