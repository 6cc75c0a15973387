"""Runs pytest in a process of its own, on a small application and its tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

# In an environment that was made before the plugin had its entry point.
INSTALLED = any(each.value == "tablequeue.testing.plugin" for each in entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "tablequeue.testing.plugin")
VARIABLES = {"PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST", "TABLEQUEUE_TEST_URL"}


class Run(NamedTuple):
    """How a run of pytest ended."""

    output: str
    counts: Mapping[str, int]
    """How many tests `passed`, `failed`, had an `error` and so on."""


def run_pytest(folder: Path, files: Mapping[str, str], *arguments: str, environment: Mapping[str, str] = {}) -> Run:
    """Write the files, and run pytest on the tests in them."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"), "utf-8")
    if not (folder / "pytest.ini").exists():
        (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    own = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN, *arguments],
        cwd=folder,
        env={**own, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    last = re.findall(r"(\d+) (passed|failed|errors?|skipped)", ran.stdout.rpartition("\n=")[2] or ran.stdout)
    return Run(ran.stdout + ran.stderr, {kind.removesuffix("s"): int(number) for number, kind in last})
