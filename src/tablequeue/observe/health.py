"""The health of a process: what /healthz, /readyz and /metrics answer. `health_server.py` serves them.

/healthz   200 while the process lives. It never asks the database: a restart of the process would not repair that.
/readyz    200 while the database answers and the process is not stopping, else 503.
/metrics   for Prometheus.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from threading import Lock, Thread
from time import monotonic, time
from typing import Any, NamedTuple

from tablequeue.observe.metrics import CONTENT_TYPE, Metric, counted, text

# Seconds that /readyz waits for the database, and seconds for which its result is reused.
PATIENCE = 2.0
FRESH = 1.0
STARTED = time()
PATHS = ("/healthz", "/readyz", "/metrics")


class HealthAnswer(NamedTuple):
    status: int
    type: str
    body: str


class Health:
    """Answers for a process.

    check     asks the database; raises if it does not answer.
    stopping  whether the process has begun to stop.
    alive     whether it can still do its work.
    details   further values of /healthz and /readyz, as JSON.
    metrics   further metrics of /metrics.
    """

    def __init__(
        self,
        check: Callable[[], object],
        *,
        stopping: Callable[[], bool] = lambda: False,
        alive: Callable[[], bool] = lambda: True,
        details: Callable[[], Mapping[str, Any]] = dict,
        metrics: Callable[[], Iterable[Metric]] = tuple,
    ) -> None:
        self._check = Check(check)
        self._stopping = stopping
        self._alive = alive
        self._details = details
        self._metrics = metrics

    def answer(self, path: str) -> HealthAnswer | None:
        """Return the answer to one of `PATHS`; None for any other. Waits up to `PATIENCE` seconds."""
        if path == "/metrics":
            return HealthAnswer(200, CONTENT_TYPE, text(self.metrics()))
        if path not in PATHS:
            return None
        told: dict[str, Any] = {"alive": self._alive(), "stopping": self._stopping()}
        good = told["alive"]
        if path == "/readyz":
            told["connected"] = self.connected
            good = good and told["connected"] and not told["stopping"]
        return HealthAnswer(200 if good else 503, "application/json", json.dumps({**told, **self._details()}) + "\n")

    @property
    def connected(self) -> bool:
        """Whether the database answers. Waits up to `PATIENCE` seconds, also if it is asked several times."""
        return self._check.passes()

    def metrics(self) -> Iterable[Metric]:
        connected = Metric("tablequeue_connected", "1 while the database answers, else 0.")
        connected.add(self.connected)
        stopping = Metric("tablequeue_stopping", "1 from the signal to stop to the end of the process, else 0.")
        stopping.add(self._stopping())
        started = Metric("tablequeue_start_time_seconds", "When the process started, in seconds since 1970.")
        started.add(STARTED)
        return [connected, stopping, started, *counted(), *self._metrics()]


class Check:
    """Whether a function returns, and raises nothing: one call at a time, in a thread of its own.

    If the database hangs, only this thread hangs, and not one for each request.
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._lock = Lock()
        self._last: Future[bool] | None = None
        self._began_at = 0.0
        self._ended_at = 0.0

    def passes(self) -> bool:
        with self._lock:
            last = self._last
            if last is None or (last.done() and monotonic() > self._ended_at + FRESH):
                last = self._last = Future()
                self._began_at = monotonic()
                Thread(target=self._run, args=(last,), name="check of the database", daemon=True).start()
        try:
            return last.result(max(0, self._began_at + PATIENCE - monotonic()))
        except TimeoutError:
            return False

    def _run(self, future: Future[bool]) -> None:
        try:
            self._function()
            passed = True
        except Exception:
            passed = False
        self._ended_at = monotonic()
        future.set_result(passed)
