"""Writes the Grafana board and the alert rules of Prometheus, from the metrics that tablequeue has.

    python -m deploy.generate

A panel names metrics without their prefix: `{messages}`. One that tablequeue does not have is a KeyError.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import yaml

import tablequeue
from tablequeue.observe.metrics import Metric
from tablequeue.spark.pipeline import Pipeline
from tablequeue.spark.pipeline.health import Watched
from tablequeue.sqs import app
from tablequeue.web.metrics import health as health_of_dashboard
from tablequeue.worker import Worker
from tablequeue.worker.health import health as health_of_worker

FOLDER = Path(__file__).parent
BOARD = FOLDER / "grafana" / "tablequeue.json"
ALERTS = FOLDER / "prometheus" / "alerts.yml"


class Panel(NamedTuple):
    """A plot: its expressions with their legends. Its description is the help of the first metric."""

    title: str
    unit: str
    lines: Mapping[str, str]


OWN = '{{instance=~"$instance",queue=~"$queue"}}'
QUEUE = '{{queue=~"$queue"}}'
# By rows. `serve` has the metrics of the first two; every process has those of the others that it can have.
PANELS: dict[str, tuple[Panel, ...]] = {
    "Queues": (
        Panel("Waiting messages", "short", {'{messages}{{queue=~"$queue",state="ready"}}': "{{queue}}"}),
        Panel("Age of the oldest ready message", "s", {f"{{oldest_age_seconds}}{QUEUE}": "{{queue}}"}),
        Panel("Dead letters", "short", {'{messages}{{queue=~"$queue",state="dead"}}': "{{queue}}"}),
        Panel(
            "Other messages",
            "short",
            {'{messages}{{queue=~"$queue",state=~"scheduled|in_progress|blocked"}}': "{{queue}} {{state}}"},
        ),
        Panel(
            "Pushed and finished, of the history",
            "ops",
            {f"{{push_rate}}{QUEUE}": "{{queue}} pushed", f"{{completion_rate}}{QUEUE}": "{{queue}} finished"},
        ),
        Panel("From push to first pop", "s", {f"{{wait_time_seconds}}{QUEUE}": "{{queue}} {{quantile}}"}),
        Panel("From last pop to finish", "s", {f"{{run_time_seconds}}{QUEUE}": "{{queue}} {{quantile}}"}),
        Panel("Attempts after the first", "short", {f"{{redeliveries}}{QUEUE}": "{{queue}}"}),
    ),
    "Topics and streams": (
        Panel("Lag of subscriptions", "s", {f"{{lag_seconds}}{QUEUE}": "{{queue}}"}),
        Panel("Messages behind", "short", {f"{{lag_messages}}{QUEUE}": "{{queue}}"}),
        Panel(
            "Age of the open batch of a stream",
            "s",
            {f"time() - {{stream_claimed_time_seconds}}{QUEUE}": "{{stream}} of {{queue}}"},
        ),
        Panel("Messages of the open batch", "short", {f"{{stream_messages}}{QUEUE}": "{{stream}} of {{queue}}"}),
    ),
    "Producers and consumers": (
        Panel(
            "Pushed",
            "ops",
            {f"sum by (queue) (rate({{pushed_messages_total}}{OWN}[$__rate_interval]))": "{{queue}}"},
        ),
        Panel(
            "Popped and completed",
            "ops",
            {
                f"sum by (queue) (rate({{popped_messages_total}}{OWN}[$__rate_interval]))": "{{queue}} popped",
                f"sum by (queue) (rate({{completed_messages_total}}{OWN}[$__rate_interval]))": "{{queue}} completed",
            },
        ),
        Panel(
            "Failed, by what they became",
            "ops",
            {
                f"sum by (queue, outcome) (rate({{failed_messages_total}}{OWN}[$__rate_interval]))": (
                    "{{queue}} {{outcome}}"
                ),
                f"sum by (queue) (rate({{released_messages_total}}{OWN}[$__rate_interval]))": "{{queue}} released",
            },
        ),
        Panel("Lost leases", "short", {f"sum by (queue) (increase({{lost_leases_total}}{OWN}[1h]))": "{{queue}}"}),
        Panel("Consumers", "short", {f"sum by (queue) ({{worker_consumers}}{OWN})": "{{queue}}"}),
        Panel(
            "Messages held by workers",
            "short",
            {f"sum by (queue, state) ({{worker_messages}}{OWN})": "{{queue}} {{state}}"},
        ),
        Panel("Oldest lease", "s", {f"{{worker_oldest_lease_seconds}}{OWN}": "{{instance}} {{queue}}"}),
        Panel(
            "Since the last pop of a message",
            "s",
            {f"time() - {{worker_last_pop_time_seconds}}{OWN}": "{{instance}} {{queue}}"},
        ),
        Panel(
            "Connected, and stopping",
            "short",
            {
                '{connected}{{instance=~"$instance"}}': "{{instance}} connected",
                '{stopping}{{instance=~"$instance"}}': "{{instance}} stopping",
            },
        ),
    ),
    "Pipelines and SQS": (
        Panel(
            "Messages of a stage",
            "ops",
            {"rate({pipeline_messages_total}[$__rate_interval])": "{{pipeline}}/{{stage}}"},
        ),
        Panel(
            "Failed messages of a stage",
            "ops",
            {"rate({pipeline_failed_messages_total}[$__rate_interval])": "{{pipeline}}/{{stage}}"},
        ),
        Panel("Messages that a stage has not read", "short", {"{pipeline_lag_messages}": "{{pipeline}}/{{stage}}"}),
        Panel("Age of the first of them", "s", {"{pipeline_lag_seconds}": "{{pipeline}}/{{stage}}"}),
        Panel("Duration of the last batch", "s", {"{pipeline_batch_duration_seconds}": "{{pipeline}}/{{stage}}"}),
        Panel("Since the last batch", "s", {"time() - {pipeline_last_batch_time_seconds}": "{{pipeline}}/{{stage}}"}),
        Panel(
            "SQS requests",
            "ops",
            {"sum by (operation, code) (rate({sqs_requests_total}[$__rate_interval]))": "{{operation}} {{code}}"},
        ),
    ),
}


class Alert(NamedTuple):
    """A rule: the expression, how long it holds before somebody is told, and what to do."""

    name: str
    severity: str
    expression: str
    wait: str
    summary: str
    remedy: str


RULES = (
    Alert(
        "TablequeueOldestAge",
        "page",
        "{oldest_age_seconds} > 900 unless on (queue) {paused} == 1",
        "5m",
        "A message of {{ $labels.queue }} has been ready for {{ $value | humanizeDuration }}.",
        "See whether its workers run and are connected, and add consumers: tablequeue top {{ $labels.queue }}",
    ),
    Alert(
        "TablequeueDeadLetters",
        "page",
        'delta({messages}{{state="dead"}}[15m]) > 0',
        "0m",
        '{{ $labels.queue }} has {{ $value | printf "%.0f" }} new dead letters.',
        "Read their errors: tablequeue dead list {{ $labels.queue }}; mend, and redrive them.",
    ),
    Alert(
        "TablequeueTopicLag",
        "page",
        "{lag_seconds} > 900",
        "5m",
        "{{ $labels.queue }} is {{ $value | humanizeDuration }} behind its topic.",
        "See whether its consumers run. A topic that keeps messages for a time drops what it does not get by then.",
    ),
    Alert(
        "TablequeueStreamStuck",
        "page",
        "time() - {stream_claimed_time_seconds} > 3600",
        "5m",
        "The stream {{ $labels.stream }} of {{ $labels.queue }} has had a batch open for "
        "{{ $value | humanizeDuration }}.",
        "Start its query again. If it never will: tablequeue stream release {{ $labels.queue }} {{ $labels.stream }}",
    ),
    Alert(
        "TablequeueNotConnected",
        "page",
        "{connected} == 0",
        "2m",
        "{{ $labels.instance }} does not reach its database.",
        "See whether the database runs, and whether it takes connections.",
    ),
    Alert(
        "TablequeueUnreadable",
        "page",
        "{up} == 0",
        "5m",
        "The queue {{ $labels.queue }} cannot be read.",
        "Read the page of the queue on the dashboard, and run: tablequeue doctor {{ $labels.queue }}",
    ),
    Alert(
        "TablequeueLostLeases",
        "ticket",
        "sum by (queue) (increase({lost_leases_total}[1h])) > 0",
        "0m",
        'Consumers of {{ $labels.queue }} lost {{ $value | printf "%.0f" }} leases in an hour: work was done twice.',
        "Make the lease longer than the work takes, or extend it: docs/delivery.md.",
    ),
    Alert(
        "TablequeueOldLease",
        "ticket",
        "{worker_oldest_lease_seconds} > 3600",
        "5m",
        "{{ $labels.instance }} has held a message of {{ $labels.queue }} for {{ $value | humanizeDuration }}.",
        "See what its handler waits for, and give it a time-out.",
    ),
    Alert(
        "TablequeueTableGrows",
        "ticket",
        "predict_linear({table_bytes}[1d], 30 * 86400) > 2 * {table_bytes} and {table_bytes} > 1e9",
        "1h",
        "The table {{ $labels.table }} doubles within a month.",
        "Give its queue a shorter history, archive old messages, or see why nothing is deleted: tablequeue doctor.",
    ),
)


def metrics() -> dict[str, Metric]:
    """Return all metrics by their names without the prefix, as processes on an empty database have them."""
    with tempfile.TemporaryDirectory() as folder, tablequeue.connect(f"sqlite:///{folder}/none.db") as database:
        parts = (
            health_of_dashboard(database).metrics(),
            health_of_worker(Worker(), database).metrics(),
            app(database).health.metrics(),
            Watched(Pipeline("none", url="sqlite:///none.db"), Event()).health.metrics(),
        )
        return {metric.name.removeprefix("tablequeue_"): metric for part in parts for metric in part}


def board(known: Mapping[str, Metric]) -> dict[str, Any]:
    names = {short: metric.name for short, metric in known.items()}
    panels = [*_panels(known, names)]
    return {
        "title": "tablequeue",
        "uid": "tablequeue",
        "tags": ["tablequeue"],
        "editable": True,
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                _variable("queue", f"label_values({names['messages']}, queue)"),
                _variable("instance", f"label_values({names['connected']}, instance)"),
            ]
        },
        "panels": panels,
    }


def alerts(known: Mapping[str, Metric]) -> dict[str, Any]:
    names = {short: metric.name for short, metric in known.items()}
    rules = [
        {
            "alert": rule.name,
            "expr": rule.expression.format_map(names),
            "for": rule.wait,
            "labels": {"severity": rule.severity},
            "annotations": {"summary": rule.summary, "description": rule.remedy},
        }
        for rule in RULES
    ]
    return {"groups": [{"name": "tablequeue", "rules": rules}]}


def files() -> dict[Path, str]:
    """Return the content of each generated file."""
    known = metrics()
    rules = yaml.safe_dump(alerts(known), sort_keys=False, width=1000)
    return {
        BOARD: json.dumps(board(known), indent=2) + "\n",
        ALERTS: f"# Written by `python -m deploy.generate`: change it there. See docs/deploy.md.\n{rules}",
    }


def _panels(known: Mapping[str, Metric], names: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    number = height = 0
    for row, panels in PANELS.items():
        number += 1
        place = {"x": 0, "y": height, "w": 24, "h": 1}
        yield {"id": number, "type": "row", "title": row, "collapsed": False, "gridPos": place, "panels": []}
        height += 1
        for at, panel in enumerate(panels):
            number += 1
            source = {"type": "prometheus", "uid": "${datasource}"}
            first = next(short for short in known if f"{{{short}}}" in next(iter(panel.lines)))
            yield {
                "id": number,
                "type": "timeseries",
                "title": panel.title,
                "description": known[first].help,
                "datasource": source,
                "gridPos": {"x": at % 4 * 6, "y": height + at // 4 * 8, "w": 6, "h": 8},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
                "targets": [
                    {
                        "refId": chr(ord("A") + place),
                        "datasource": source,
                        "expr": expression.format_map(names),
                        "legendFormat": legend,
                    }
                    for place, (expression, legend) in enumerate(panel.lines.items())
                ],
            }
        height += -(-len(panels) // 4) * 8


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


if __name__ == "__main__":
    for path, content in files().items():
        path.write_text(content)
