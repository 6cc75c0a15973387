"""Metrics for Prometheus: of each queue and subscription the counts of this moment, and the last five minutes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from tablequeue.database import Database
from tablequeue.errors import TablequeueError
from tablequeue.operations.stats import COUNTED, MOST, Stats, Times
from tablequeue.states import STATES
from tablequeue.web.render import Site

WINDOW = 300
QUANTILES = {"0.5": "p50", "0.95": "p95", "0.99": "p99"}


def metrics(site: Site, request: Request) -> Response:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Numbers(site.database))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Numbers(Collector):
    def __init__(self, database: Database) -> None:
        self._database = database

    def collect(self) -> Iterable[Metric]:
        up = GaugeMetricFamily("tablequeue_up", "Whether the queue could be read.", labels=["queue"])
        found: list[Stats] = []
        for name in [*self._database.queues(), *self._database.subscriptions()]:
            try:
                found.append(self._database.queue(name).stats(window=WINDOW))
                up.add_metric([name], 1)
            except TablequeueError:
                up.add_metric([name], 0)
        return [up, *_now(found), *_lately(found)]

    def describe(self) -> Iterable[Metric]:
        return []  # so that registering does not query the database


def _now(found: list[Stats]) -> Iterator[Metric]:
    messages = GaugeMetricFamily("tablequeue_messages", "Messages by state.", labels=["queue", "state"])
    oldest = GaugeMetricFamily(
        "tablequeue_oldest_age_seconds",
        "Seconds since the first ready message was pushed; 0 without ready messages.",
        labels=["queue"],
    )
    lost = GaugeMetricFamily(
        "tablequeue_lost_messages", "Messages delivered at most once and never completed.", labels=["queue"]
    )
    finished = GaugeMetricFamily(
        "tablequeue_history_messages",
        f"Finished messages in the history; an estimate from {COUNTED:,} on.",
        labels=["queue"],
    )
    expired = GaugeMetricFamily(
        "tablequeue_expired_messages", f"Messages of the history that expired, up to {COUNTED:,}.", labels=["queue"]
    )
    lag = GaugeMetricFamily(
        "tablequeue_lag_messages", "Messages that no consumer of the subscription has claimed.", labels=["queue"]
    )
    behind = GaugeMetricFamily(
        "tablequeue_lag_seconds", "Seconds since the first of them was pushed; 0 if there is none.", labels=["queue"]
    )
    places = GaugeMetricFamily(
        "tablequeue_concurrency_limit", "Messages that may be in progress at once.", labels=["queue"]
    )
    paused = GaugeMetricFamily("tablequeue_paused", "1 while claims of the queue are paused, else 0.", labels=["queue"])
    rate = GaugeMetricFamily("tablequeue_rate_limit", "Messages that may be claimed a second.", labels=["queue"])
    of_group = GaugeMetricFamily(
        "tablequeue_group_concurrency_limit", "Messages of a group that may be in progress at once.", labels=["queue"]
    )
    group_rate = GaugeMetricFamily(
        "tablequeue_group_rate_limit", "Messages of a group that may be claimed a second.", labels=["queue"]
    )
    for stats in found:
        if stats.per_group is not None:
            of_group.add_metric([stats.queue], stats.per_group)
        if stats.group_rate is not None:
            group_rate.add_metric([stats.queue], stats.group_rate)
        if stats.concurrency is not None:
            places.add_metric([stats.queue], stats.concurrency)
        if stats.rate is not None:
            rate.add_metric([stats.queue], stats.rate)
        paused.add_metric([stats.queue], stats.paused_until is not None)
        if stats.lag is not None:
            lag.add_metric([stats.queue], stats.lag.messages)
            behind.add_metric([stats.queue], stats.lag.seconds or 0)
        for state in STATES:
            messages.add_metric([stats.queue, state], getattr(stats, state))
        oldest.add_metric([stats.queue], stats.oldest_age or 0)
        if stats.finished is not None:
            finished.add_metric([stats.queue], stats.finished)
        if stats.expired is not None:
            expired.add_metric([stats.queue], stats.expired)
        if stats.lost is not None:
            lost.add_metric([stats.queue], stats.lost)
    yield from (messages, oldest, finished, expired, lost, lag, behind, places, rate, of_group, group_rate, paused)


def _lately(found: list[Stats]) -> Iterator[Metric]:
    when = f" in the last {WINDOW} seconds, or of the last {MOST:,} messages if there were more"
    pushed = GaugeMetricFamily("tablequeue_push_rate", f"Messages pushed a second{when}.", labels=["queue"])
    done = GaugeMetricFamily("tablequeue_completion_rate", f"Messages finished a second{when}.", labels=["queue"])
    again = GaugeMetricFamily(
        "tablequeue_redeliveries", f"Attempts after the first one, of messages finished{when}.", labels=["queue"]
    )
    wait = GaugeMetricFamily(
        "tablequeue_wait_time_seconds",
        f"Seconds from push to first pop, of messages finished{when}.",
        labels=["queue", "quantile"],
    )
    run = GaugeMetricFamily(
        "tablequeue_run_time_seconds",
        f"Seconds from last pop to finish, of messages finished{when}.",
        labels=["queue", "quantile"],
    )
    for stats in found:
        if stats.window is None:
            continue
        activity = stats.window.queue
        pushed.add_metric([stats.queue], activity.push_rate or 0)
        done.add_metric([stats.queue], activity.completion_rate)
        again.add_metric([stats.queue], activity.redeliveries)
        _add(wait, stats.queue, activity.wait_time)
        _add(run, stats.queue, activity.run_time)
    yield from (pushed, done, again, wait, run)


def _add(family: GaugeMetricFamily, queue: str, times: Times | None) -> None:
    for quantile, name in QUANTILES.items():
        if times is not None:
            family.add_metric([queue, quantile], getattr(times, name))
