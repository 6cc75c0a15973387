"""The examples run, and print what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from examples.race import MESSAGES, WORKERS

from tests.servers import Kind

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


def test_the_race(kind: Kind, request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "examples.race", "--url", kind.url(request)]
    for _ in range(2):  # it leaves nothing behind that would disturb the next one
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        naive, claiming = re.findall(r"│ (?:select|tablequeue)[^│]*│ +(\d+) │ +(\d+) │ +(\d+) │ +(\d+) │", run.stdout)
        assert naive == (str(MESSAGES * WORKERS), "0", str(MESSAGES), "0"), "every worker gets every message"
        assert claiming == (str(MESSAGES), str(MESSAGES), "0", "0"), "every message goes to one worker"
