"""The main job on a sample: what it writes equals a direct computation over the file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import IO

import pytest
from examples.flights.data import carriers_of, flights
from examples.flights.demo import LABELS, drop_last
from examples.flights.processes import QUEUE

import tablequeue

pytestmark = pytest.mark.usefixtures("quick_java")

ROOT = Path(__file__).parents[2]
SAMPLE = 6000


def start_demo(folder: Path, sample: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "examples.flights", str(sample)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_the_demo_on_a_sample(tmp_path: Path) -> None:
    process = start_demo(tmp_path, SAMPLE)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "killed (SIGKILL) with" in output
    summary = json.loads((tmp_path / "demo" / "summary.json").read_text())
    counts = {name: summary[name] for name in ("pushed", "delivered", "distinct", "duplicates", "lost")}
    assert counts == {"pushed": SAMPLE, "delivered": SAMPLE, "distinct": SAMPLE, "duplicates": 0, "lost": 0}
    assert 0 < summary["redelivered"] <= 500
    assert summary["carriers"] == carriers_of(islice(flights(), SAMPLE))
    report = (tmp_path / "demo" / "report.html").read_text()
    assert all(carrier["name"] in report for carrier in summary["carriers"].values())
    for table in ("carriers", "times", "throughput", "workers"):
        assert list((tmp_path / "demo" / "parquet" / table).glob("*.parquet"))


def test_an_interrupt_stops_it_at_once_and_says_so(tmp_path: Path) -> None:
    process = start_demo(tmp_path, SAMPLE)
    assert process.stdout is not None
    read_until(process.stdout, "SIGKILL")  # for as long as the lease of what that consumer held, it goes on
    # As a terminal does it: to every process of the group.
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 130
    assert "Interrupted while moving the flights" in " ".join(output.split())
    assert "Traceback" not in output


def read_until(stream: IO[str], words: str) -> None:
    for line in stream:
        if words in line:
            return
    raise AssertionError(f"the demo ended without saying {words!r}")


def test_carriers_of_counts_and_averages() -> None:
    found = carriers_of(
        [
            {"carrier": "UA", "dep_delay": 1, "arr_delay": None},
            {"carrier": "UA", "dep_delay": 2, "arr_delay": None},
        ]
    )
    assert found == {
        "UA": {"name": "United Air Lines Inc.", "flights": 2, "mean_dep_delay": 1.5, "mean_arr_delay": None}
    }


def test_a_queue_that_no_demo_has_made_stays(tmp_path: Path) -> None:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'work.db'}") as database:
        database.create_queue(QUEUE, labels=LABELS).push("of the last demo")
        drop_last(database)
        assert database.queues() == []
        database.create_queue(QUEUE).push("mine")
        with pytest.raises(SystemExit, match="has not made"):
            drop_last(database)
        assert database.queue(QUEUE).stats().ready == 1
