"""The health of a worker: whether it lives, is connected and stops, and which messages it holds of each queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tablequeue.database import Database
from tablequeue.observe.health import Health
from tablequeue.observe.metrics import Metric
from tablequeue.worker.fetcher import Load
from tablequeue.worker.worker import Worker


def health(worker: Worker, database: Database) -> Health:
    """Return the health of a worker that runs on a database, for a `HealthServer`.

    /healthz fails when a thread that the worker needs has ended. /readyz fails when one of its queues cannot be opened,
    and after the signal to stop.
    """

    def check() -> None:
        for queue in worker.handlers:
            database.consumer(queue)

    return Health(
        check if worker.handlers else database.queues,
        stopping=lambda: worker.stopping,
        alive=lambda: worker.alive,
        details=lambda: {"queues": {load.queue: _details(load) for load in worker.loads}},
        metrics=lambda: _metrics(worker.loads),
    )


def _details(load: Load) -> Mapping[str, Any]:
    last_pop = load.last_pop and datetime.fromtimestamp(load.last_pop, UTC).isoformat(timespec="milliseconds")
    oldest_lease = load.oldest and round(load.oldest, 3)
    return {"consumers": load.consumers, **load.messages, "last_pop": last_pop, "oldest_lease": oldest_lease}


def _metrics(loads: Sequence[Load]) -> Iterable[Metric]:
    consumers = Metric("tablequeue_worker_consumers", "Consumers of the worker.")
    held = Metric(
        "tablequeue_worker_messages",
        "Messages that the worker holds: waiting for a consumer, running, or ended and not yet finished.",
    )
    popped = Metric("tablequeue_worker_last_pop_time_seconds", "When a pop last found messages, in seconds since 1970.")
    oldest = Metric(
        "tablequeue_worker_oldest_lease_seconds", "Seconds since the pop of the first message that the worker holds."
    )
    for load in loads:
        consumers.add(load.consumers, queue=load.queue)
        for state, number in load.messages.items():
            held.add(number, queue=load.queue, state=state)
        popped.add(load.last_pop, queue=load.queue)
        oldest.add(load.oldest or 0, queue=load.queue)
    return consumers, held, popped, oldest
