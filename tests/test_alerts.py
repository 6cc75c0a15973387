"""The alert rules of deploy/, run by Prometheus's own program on series that should, and should not, raise them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
# What Grafana puts in for its own variables.
VARIABLES = {"$__rate_interval": "5m", "$queue": ".*", "$instance": ".*"}


class Case(NamedTuple):
    """Series, with a value for each minute, and the minutes at which an alert is looked for."""

    series: dict[str, str]
    raised: tuple[int, ...]
    silent: tuple[int, ...]


CASES: dict[str, Case] = {
    "TablequeueOldestAge": Case(
        {
            'tablequeue_oldest_age_seconds{queue="work"}': "0+60x40",
            'tablequeue_paused{queue="work"}': "0x30 1x10",
        },
        raised=(21, 30),
        silent=(20, 31),  # above 15 minutes for less than 5; paused
    ),
    "TablequeueDeadLetters": Case(
        {'tablequeue_messages{queue="work",state="dead"}': "0x5 2x40"}, raised=(6, 20), silent=(5, 21)
    ),
    "TablequeueTopicLag": Case({'tablequeue_lag_seconds{queue="films/mail"}': "0+60x40"}, raised=(21,), silent=(20,)),
    "TablequeueStreamStuck": Case(
        {'tablequeue_stream_claimed_time_seconds{queue="work",stream="numbers"}': "0x90"}, raised=(66,), silent=(65,)
    ),
    "TablequeueNotConnected": Case({'tablequeue_connected{instance="a"}': "1x5 0x20 1"}, raised=(8,), silent=(7, 27)),
    "TablequeueUnreadable": Case({'tablequeue_up{queue="work"}': "1x5 0x20 1"}, raised=(11,), silent=(10, 27)),
    "TablequeueLostLeases": Case(
        {'tablequeue_lost_leases_total{queue="work"}': "0x5 3x100"}, raised=(6, 65), silent=(5, 66)
    ),
    "TablequeueOldLease": Case(
        {'tablequeue_worker_oldest_lease_seconds{instance="a",queue="work"}': "0+60x80"}, raised=(66,), silent=(65,)
    ),
    "TablequeueTableGrows": Case(
        {'tablequeue_table_bytes{queue="work",table="tq_work"}': "2000000000+1000000x70 2070000000x2000"},
        raised=(61,),
        silent=(60, 1600),  # for less than an hour; not in the last day
    ),
}


def promtool(folder: Path, command: str, content: dict[str, Any]) -> str:
    """Write a file, and run `promtool COMMAND rules` on it. Return what it found wrong."""
    program = shutil.which("promtool")
    if program is None:
        refuse = pytest.fail if os.environ.get("CI") and sys.platform == "linux" else pytest.skip
        refuse("Prometheus is not installed.")
    file = folder / "rules.yml"
    file.write_text(yaml.safe_dump(content))
    ran = subprocess.run([program, command, "rules", str(file)], capture_output=True, text=True, timeout=60)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_each_alert_is_raised_when_it_should_be(tmp_path: Path) -> None:
    assert CASES.keys() == {rule["alert"] for rule in rules()}
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": "{}", "value": 1}] if minute in case.raised else [],
                }
                for minute in (*case.raised, *case.silent)
            ],
        }
        for name, case in CASES.items()
    ]
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    assert promtool(tmp_path, "test", content) == ""


def test_prometheus_reads_each_expression_of_the_board(tmp_path: Path) -> None:
    board = json.loads((DEPLOY / "grafana" / "tablequeue.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    for name, value in VARIABLES.items():
        expressions = [expression.replace(name, value) for expression in expressions]
    records = [{"record": f"panel:{number}", "expr": each} for number, each in enumerate(expressions)]
    assert promtool(tmp_path, "check", {"groups": [{"name": "board", "rules": records}]}) == ""
