"""Reports by a client of Spark Connect: the same numbers as DuckDB's, of the same messages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tablequeue
from tablequeue.bulk.archive import archive
from tablequeue.errors import BadInput
from tablequeue.spark.reports import job
from tablequeue.spark.reports.lake import Window
from tests.servers import free_port
from tests.spark.test_report_lake import ago
from tests.support import refuses

# `tablequeue`, for which every report is one of many messages.
PROGRAM = "from tablequeue.cli import main; from tablequeue.spark.reports import job; job.FEW = -1; main()"


@pytest.mark.nightly  # by day: every report of Spark in test_report_numbers.py, and its reads in test_connect.py
def test_every_report(connect_server: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    with tablequeue.connect(url) as database:
        queue = database.create_queue("work", max_attempts=2, lease=1e6)
        queue.push_many(range(30), now=ago(300), headers={"trace": "1"})
        claims = queue.pop_many(20, now=ago(200))
        claims[0].fail('"quoted" \\ \u6f22', retry_in=0, now=ago(190))
        queue.complete_many(claims[1:11], now=ago(180))
        archive(queue, tmp_path / "lake" / "archived", 0)
        shutil.copytree(tmp_path / "lake", tmp_path / "other")
        queue.complete_many(claims[11:], now=ago(170))

        words = ["--url", url, "report", "--lake", "lake", "--master", connect_server]
        done = subprocess.run([sys.executable, "-c", PROGRAM, *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "The report is in lake/report.html" in done.stdout
        found = job.report(database, (), tmp_path / "other", Window(), 10.0)
    assert found["overview"][0]["finished"] == 19
    for name, rows in found.items():
        table = pq.read_table(tmp_path / "lake" / "tables" / name, coerce_int96_timestamp_unit="us")
        assert plain(table.to_pylist()) == plain(rows), name


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with times in UTC, some of which do not say so."""
    return [
        {name: value.replace(tzinfo=None) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows
    ]


def test_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "FEW", -1)
    with tablequeue.connect(f"sqlite:///{tmp_path}/work.db") as database:
        database.create_queue("work")
        nobody = f"sc://127.0.0.1:{free_port()}"
        error = refuses(BadInput, job.report, database, (), tmp_path / "lake", Window(), 5.0, master=nobody)
    assert "No server of Spark Connect" in error.cause
