"""The metrics of each queue and subscription: the counts of this moment, and the rates of the last five minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from tablequeue.bulk.stream import StreamState, streams
from tablequeue.database import Database
from tablequeue.errors import TablequeueError
from tablequeue.model.states import STATES
from tablequeue.observe.health import Health
from tablequeue.observe.metrics import Metric
from tablequeue.verbs.stats import COUNTED, MOST, Activity, Stats, Times

WINDOW = 300
QUANTILES = {"0.5": "p50", "0.95": "p95", "0.99": "p99"}
_LATELY = f" in the last {WINDOW} seconds, or of the last {MOST:,} messages if there were more"

# Each metric with its help, and how its value comes from the numbers of a queue; None: the queue has no sample.
NOW: dict[str, tuple[str, Callable[[Stats], float | None]]] = {
    "oldest_age_seconds": (
        "Seconds since the first ready message was pushed; 0 without ready messages.",
        lambda stats: stats.oldest_age or 0,
    ),
    "history_messages": (
        f"Finished messages in the history; an estimate from {COUNTED:,} on.",
        attrgetter("finished"),
    ),
    "expired_messages": (f"Messages of the history that expired, up to {COUNTED:,}.", attrgetter("expired")),
    "lost_messages": ("Messages delivered at most once and never completed.", attrgetter("lost")),
    "lag_messages": (
        "Messages that no consumer of the subscription has claimed.",
        lambda stats: stats.lag.messages if stats.lag else None,
    ),
    "lag_seconds": (
        "Seconds since the first of them was pushed; 0 if there is none.",
        lambda stats: (stats.lag.seconds or 0) if stats.lag else None,
    ),
    "open_batches": ("Batches that have not ended, up to 100,000.", attrgetter("open_batches")),
    "concurrency_limit": ("Messages that may be in progress at once.", attrgetter("concurrency")),
    "rate_limit": ("Messages that may be claimed a second.", attrgetter("rate")),
    "group_concurrency_limit": ("Messages of a group that may be in progress at once.", attrgetter("per_group")),
    "group_rate_limit": ("Messages of a group that may be claimed a second.", attrgetter("group_rate")),
    "paused": ("1 while claims of the queue are paused, else 0.", lambda stats: stats.paused_until is not None),
}
LATELY: dict[str, tuple[str, Callable[[Activity], float | None]]] = {
    "push_rate": ("Messages pushed a second", lambda activity: activity.push_rate or 0),
    "completion_rate": ("Messages finished a second", attrgetter("completion_rate")),
    "redeliveries": ("Attempts after the first one, of messages finished", attrgetter("redeliveries")),
}
TIMES: dict[str, tuple[str, Callable[[Activity], Times | None]]] = {
    "wait_time_seconds": ("Seconds from push to first pop, of messages finished", attrgetter("wait_time")),
    "run_time_seconds": ("Seconds from last pop to finish, of messages finished", attrgetter("run_time")),
}


def health(database: Database) -> Health:
    """Return the health of a process that serves the dashboard of a database."""
    # A scrape of a database that hangs would keep a thread, and /healthz has none once all are taken.
    answers = Health(database.queues, metrics=lambda: of_queues(database) if answers.connected else ())
    return answers


def of_queues(database: Database) -> Iterable[Metric]:
    """Return the metrics of all queues and subscriptions; only the metric of the database if it does not answer."""
    up = Metric("tablequeue_up", "Whether the queue could be read.")
    found: list[Stats] = []
    read: dict[str, Sequence[StreamState]] = {}
    try:
        queues, subscriptions = database.queues(), database.subscriptions()
    except TablequeueError:
        return []
    for name in [*queues, *subscriptions]:
        try:
            queue = database.consumer(name)
            stats = queue.stats(window=WINDOW)
            read[name] = streams(queue) if name in queues else ()
            found.append(stats)
            up.add(1, queue=name)
        except TablequeueError:
            up.add(0, queue=name)
    return [up, *_now(found), *_lately(found), *_streams(read), *_sizes(database)]


def _now(found: Sequence[Stats]) -> Iterable[Metric]:
    messages = Metric("tablequeue_messages", "Messages by state.")
    for stats in found:
        for state in STATES:
            messages.add(getattr(stats, state), queue=stats.queue, state=state)
    yield messages
    for name, (help, value) in NOW.items():
        metric = Metric(f"tablequeue_{name}", help)
        for stats in found:
            metric.add(value(stats), queue=stats.queue)
        yield metric


def _lately(found: Sequence[Stats]) -> Iterable[Metric]:
    activities = {stats.queue: stats.window.queue for stats in found if stats.window is not None}
    for name, (help, value) in LATELY.items():
        metric = Metric(f"tablequeue_{name}", f"{help}{_LATELY}.")
        for queue, activity in activities.items():
            metric.add(value(activity), queue=queue)
        yield metric
    for name, (help, times) in TIMES.items():
        metric = Metric(f"tablequeue_{name}", f"{help}{_LATELY}.")
        for queue, activity in activities.items():
            for quantile, percentile in QUANTILES.items():
                metric.add(getattr(times(activity), percentile, None), queue=queue, quantile=quantile)
        yield metric


def _streams(read: dict[str, Sequence[StreamState]]) -> Iterable[Metric]:
    open = Metric("tablequeue_stream_messages", "Messages of the open batch of a stream, with which Spark reads.")
    since = Metric(
        "tablequeue_stream_claimed_time_seconds", "When a stream claimed its open batch, in seconds since 1970."
    )
    for queue, states in read.items():
        for state in states:
            open.add(state.open, queue=queue, stream=state.stream)
            since.add(state.claimed_at.timestamp() if state.claimed_at else None, queue=queue, stream=state.stream)
    return open, since


def _sizes(database: Database) -> Iterable[Metric]:
    bytes = Metric("tablequeue_table_bytes", "Bytes of a table with its indexes; on SQLite of the file.")
    dead = Metric("tablequeue_table_dead_rows", "Rows that take space until the server cleans them up, about.")
    try:
        found = database.sizes()
    except TablequeueError:
        return []
    for each in found:
        bytes.add(each.bytes, table=each.table, queue=each.queue or "")
        dead.add(each.dead, table=each.table, queue=each.queue or "")
    return bytes, dead
