"""`tablequeue demo`, run as a new user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.cli.support import Run


def test_nothing_is_lost_when_a_consumer_is_killed(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tablequeue", "demo", "--messages", "2000", "--json"]
    # A database that the shell names is not touched.
    environment = os.environ | {"TMPDIR": str(tmp_path), "TABLEQUEUE_URL": f"sqlite:///{tmp_path / 'other.db'}"}
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert (summary["pushed"], summary["delivered"], summary["lost"], summary["duplicates"]) == (2000, 2000, 0, 0)
    assert summary["held_by_the_killed"] == summary["redelivered"] > 0
    assert not [*tmp_path.iterdir()], "nothing is left"


def test_a_difference_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("tablequeue.cli.demo"), "_move", lambda *args, **options: 200)
    assert "differs from what was pushed" in run("demo", code=1).stderr
