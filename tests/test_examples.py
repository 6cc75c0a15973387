"""The examples run, and print what they promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from examples.race import MESSAGES, WORKERS

from tests.servers import Kind, Place, only

ROOT = Path(__file__).parents[1]


def test_the_burst(tmp_path: Path) -> None:
    plot = tmp_path / "burst.svg"
    command = [sys.executable, "-m", "examples.burst", "--messages", "500", "--consumers", "4", "--plot", str(plot)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    consumers = [int(number) for number in re.findall(r"│ +[\d.]+ +│ +[\d,]+ +│ (\d+)", run.stdout)]
    assert consumers[-1] == 0, "all have retired"
    assert 1 < max(consumers) <= 4
    assert plot.read_text().lstrip().startswith("<?xml")


@only("postgresql")  # on SQLite with the third service, Spark, in tests/spark/test_events.py
def test_the_events(place: Place, tmp_path: Path) -> None:
    place.execute(f"create schema {place.schema}")
    url = sa.make_url(place.url).update_query_dict({"options": f"-csearch_path={place.schema}"})
    command = [sys.executable, "-m", "examples.events", "--messages", "3000", "--services", "alerts,audit"]
    run = subprocess.run(
        [*command, "--url", url.render_as_string(hide_password=False)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("is killed (SIGKILL) with") == 2
    for service in ("alerts", "audit"):
        assert re.search(rf"events/{service} +│ 3,000 +│ 3,000 +│ 3,000", run.stdout), run.stdout


def test_the_race(kind: Kind, request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "examples.race", "--url", kind.url(request)]
    for _ in range(2 if kind.name == "postgresql" else 1):  # it leaves nothing behind that would disturb the next one
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        naive, claiming = re.findall(r"│ (?:select|tablequeue)[^│]*│ +(\d+) │ +(\d+) │ +(\d+) │ +(\d+) │", run.stdout)
        assert naive == (str(MESSAGES * WORKERS), "0", str(MESSAGES), "0"), "every worker gets every message"
        assert claiming == (str(MESSAGES), str(MESSAGES), "0", "0"), "every message goes to one worker"
