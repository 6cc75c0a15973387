"""The example of topics on a sample: three services, each killed on the way, and each gets every message once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# By night: the kills of a stream, of workers and of consumers of a topic are by day in tests of their own.
pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("quick_java")]

ROOT = Path(__file__).parents[2]


def test_each_service_gets_each_flight_once(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "examples.events", "--messages", "3000"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("is killed (SIGKILL)") == 3
    for service in ("alerts", "audit", "lake"):
        assert re.search(rf"events/{service} +│ 3,000 +│ 3,000 +│ 3,000", run.stdout), run.stdout
