"""tablequeue as an adapter of hardbyte/postgresql-job-queue-benchmarking: the scenario `long_horizon`.

One process pushes what the harness asks for on stdin, runs a worker, and writes samples to stdout. It uses the public
API alone. It cannot yet do: failure plans, herds of scheduled jobs, several queues, and the other scenarios.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import tablequeue
from tablequeue import Claim, Database, Queue, TablequeueError
from tablequeue.worker import Worker

QUEUE = "bench"
WINDOW = 30  # seconds
# Buckets of latencies: e to 1/200 is half a percent.
FINENESS = 200
# The share of the time from which on a core, or the producer, has no reserve.
FULL = 0.95
DEPTH_EVERY = 0.5
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
MANIFEST = json.loads(Path(__file__).with_name("adapter.json").read_text())
# Global observations, which only the first replica emits.
OBSERVED = ("queue_depth", "producer_target_rate")


def setting(name: str, default: float) -> float:
    return float(os.environ.get(name) or default)


class Latencies:
    """A histogram of the last seconds, in bounded memory."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seconds: deque[tuple[int, Counter[int]]] = deque(maxlen=WINDOW)

    def add(self, milliseconds: float, number: int = 1) -> None:
        second = int(time.monotonic())
        with self._lock:
            if not self._seconds or self._seconds[-1][0] != second:
                self._seconds.append((second, Counter()))
            self._seconds[-1][1][round(math.log(max(milliseconds, 0.001)) * FINENESS)] += number

    def percentiles(self) -> dict[str, float]:
        since = time.monotonic() - WINDOW
        # Consumers wait for the lock, so they must not wait for the sum.
        with self._lock:
            recent = [counts for second, counts in self._seconds if second >= since]
            recent[-1:] = [counts.copy() for counts in recent[-1:]]
        total: Counter[int] = Counter()
        for counts in recent:
            total.update(counts)
        buckets = sorted(total.items())
        return {name: _percentile(buckets, share) for name, share in PERCENTILES.items()}


def _percentile(buckets: list[tuple[int, int]], share: float) -> float:
    left = share * sum(number for _, number in buckets)
    for bucket, number in buckets:
        left -= number
        if left <= 0:
            return math.exp(bucket / FINENESS)
    return 0.0


class Bench:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.queue: Queue = database.create_queue(QUEUE)
        self.stopping = Event()
        self.instance = int(setting("BENCH_INSTANCE_ID", 0))
        self.rate = setting("PRODUCER_RATE", 800)
        self.work = setting("JOB_WORK_MS", 1) / 1000
        self.padding = "x" * max(0, int(setting("JOB_PAYLOAD_BYTES", 256)) - 96)
        self.most = max(1, int(setting("PRODUCER_BATCH_MAX", 128)))
        self.pause = setting("PRODUCER_BATCH_MS", 10) / 1000
        self.latencies = {name: Latencies() for name in ("producer", "claim", "end_to_end")}
        self.pushed = self.claimed = self.completed = self.depth = 0
        self.pushing = 0.0
        """Seconds that the producer has spent in pushes."""
        self._depth_before = 0
        """The depth when nothing was pushed and claimed, as the last look at the depth has it."""
        self._emitting = Lock()

    # -- telemetry ---------------------------------------------------------------------------------------------------

    def emit(self, record: dict[str, Any]) -> None:
        with self._emitting:
            print(json.dumps({**record, "instance_id": self.instance}), flush=True)

    def describe(self) -> None:
        known = {name: MANIFEST[name] for name in ("system", "event_tables", "extensions", "db_name")}
        release = version("tablequeue")
        self.emit(
            {"kind": "descriptor", **known, "version": release, "schema_version": release, "started_at": _iso_now()}
        )

    def sample(self) -> None:
        """Emit a record for each metric at each multiple of the interval of the wall clock."""
        every = setting("SAMPLE_EVERY_S", 5)
        last, pushed, completed = time.monotonic(), self.pushed, self.completed
        used, pushing = time.process_time(), self.pushing
        while not self.stopping.wait(every - time.time() % every):
            now, more, done = time.monotonic(), self.pushed, self.completed
            passed = now - last
            rates = {"enqueue_rate": (more - pushed) / passed, "completion_rate": (done - completed) / passed}
            last, pushed, completed = now, more, done
            if time.process_time() - used > FULL * passed:
                _log("This adapter is the bound, and not the queue: it uses a whole core.")
            if self.pushing - pushing > FULL * passed:
                _log(f"The producer is the bound: it pushes without a pause, {rates['enqueue_rate']:.0f} a second.")
            used, pushing = time.process_time(), self.pushing
            moment = {"queue_depth": float(self.depth), "producer_target_rate": self.rate}
            recent = {
                f"{kind}_{name}_ms": value
                for kind, latencies in self.latencies.items()
                for name, value in latencies.percentiles().items()
            }
            at = _iso_now()
            for group, window in ((recent, float(WINDOW)), (rates, every), (moment, 0.0)):
                for metric, value in group.items():
                    if metric not in OBSERVED or self.instance == 0:
                        known = {"t": at, "system": MANIFEST["system"], "kind": "adapter", "subject_kind": "adapter"}
                        self.emit({**known, "subject": "", "metric": metric, "value": value, "window_s": window})

    def observe(self) -> None:
        while not self.stopping.wait(DEPTH_EVERY):
            try:
                own = self.pushed - self.claimed
                self.depth = self.queue.stats().ready
                self._depth_before = self.depth - own
            except TablequeueError as error:
                _log(error)

    # -- producing ---------------------------------------------------------------------------------------------------

    def produce(self) -> None:
        for number in self._asked_for():
            if self.stopping.is_set():
                return
            began, created = time.monotonic(), time.time() * 1000
            jobs = [{"at": created, "padding": self.padding} for _ in range(number)]
            while not self.stopping.is_set():
                try:
                    self.queue.push_many(jobs)
                except TablequeueError as error:  # the server restarts, say
                    _log(error)
                    self.stopping.wait(0.2)
                else:
                    took = time.monotonic() - began
                    self.pushing += took
                    self.latencies["producer"].add(took * 1000 / number, number)
                    self.pushed += number
                    break

    def _asked_for(self) -> Iterator[int]:
        """Yield the numbers of jobs to push at once, when it is time."""
        if os.environ.get("PRODUCER_MODE") == "depth-target":
            return self._up_to_depth(int(setting("TARGET_DEPTH", 1000)))
        return self._tokens() if os.environ.get("PRODUCER_PACING") == "harness" else self._paced()

    def _tokens(self) -> Iterator[int]:
        """Those of the lines `ENQUEUE <n>`. All lines must be read: the harness waits while the pipe is full."""
        # Without a buffer, whose lock a thread that reads would keep when the process ends.
        with open(0, "rb", buffering=0, closefd=False) as tokens:
            for line in tokens:
                word, _, number = line.decode().strip().partition(" ")
                if word == "ENQUEUE" and number.isdigit() and int(number):
                    yield int(number)

    def _paced(self) -> Iterator[int]:
        last, credit = time.monotonic(), 0.0
        while not self.stopping.wait(self.pause):
            if path := os.environ.get("PRODUCER_RATE_CONTROL_FILE"):
                try:
                    self.rate = float(Path(path).read_text())
                except (OSError, ValueError) as error:
                    _log(error)
            now = time.monotonic()
            credit += (now - last) * self.rate
            last = now
            while credit >= 1:
                number = min(int(credit), self.most)
                credit -= number
                yield number

    def _up_to_depth(self, target: int) -> Iterator[int]:
        """By what this process has pushed and claimed since the last look at the depth.

        To ask the database before each push takes longer the more messages there were: the counts read dead entries of
        the index.
        """
        while not self.stopping.is_set():
            missing = target - (self._depth_before + self.pushed - self.claimed)
            if missing > 0:
                yield min(missing, self.most)
            else:
                self.stopping.wait(self.pause)

    # -- consuming ---------------------------------------------------------------------------------------------------

    async def handle(self, message: Claim) -> None:
        created = message.payload["at"]
        self.claimed += 1
        self.latencies["claim"].add(time.time() * 1000 - created)
        if self.work:
            await asyncio.sleep(self.work)
        self.latencies["end_to_end"].add(time.time() * 1000 - created)
        self.completed += 1

    def wait_for_gate(self) -> None:
        """Wait until the harness lets consumers begin, if it says when."""
        path = os.environ.get("CONSUMER_GATE_FILE")
        while path and not self.stopping.is_set():
            try:
                if Path(path).read_text().strip() == "open":
                    return
            except OSError:
                pass
            self.stopping.wait(0.2)

    def run(self) -> None:
        """Run until SIGTERM, or SIGINT."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: self.stopping.set())
        self.describe()
        threads = [Thread(target=work, daemon=True) for work in (self.sample, self.observe, self.produce)]
        for thread in threads:
            thread.start()
        self.wait_for_gate()
        if not self.stopping.is_set():
            worker = Worker(maximum=int(setting("WORKER_COUNT", 32)), shutdown_timeout=3)
            worker.handler(QUEUE)(self.handle)
            worker.run(self.database)  # it has the signals meanwhile
        self.stopping.set()
        for thread in threads[:-1]:  # the last one waits for a token
            thread.join()


def _iso_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _log(error: object) -> None:
    print(f"[tablequeue] {error}", file=sys.stderr, flush=True)


def main() -> None:
    scheme, _, rest = os.environ["DATABASE_URL"].partition("://")
    url = f"postgresql+psycopg://{rest}" if scheme in ("postgres", "postgresql") else os.environ["DATABASE_URL"]
    with tablequeue.connect(url) as database:
        if os.environ.get("SCENARIO", "long_horizon") == "long_horizon":
            Bench(database).run()
        elif os.environ["SCENARIO"] == "migrate_only":
            database.create_queue(QUEUE)
        else:
            raise SystemExit(f"There is no scenario {os.environ['SCENARIO']!r}: use long_horizon.")


if __name__ == "__main__":
    main()
