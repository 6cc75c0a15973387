"""The Spark page: its programs run, one after another."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BLOCK = re.compile(r"^```py\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_page_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Spark's workers are elsewhere than this process: its paths are made whole.
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    namespace: dict[str, Any] = {"spark": spark}
    for block in BLOCK.finditer(text):
        program = block[1].replace("sqlite:///work.db", f"sqlite:///{tmp_path}/work.db")
        program = re.sub(r'"((?:lake|checkpoints)(?:/\w+)?)"(?=\)| *\))', rf'"{tmp_path}/\1"', program)
        line = text.count("\n", 0, block.start()) + 1
        exec(compile("\n" * line + program, str(PAGE), "exec"), namespace)


def test_the_first_example_runs_in_a_session_of_the_users(spark: Any, tmp_path: Path) -> None:
    """Spark's own choice is the python3 of the path, which need not have tablequeue. The fixture provides Java."""
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} -I -S "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    session, place, *_ = BLOCK.findall(PAGE.read_text("utf-8"))
    place = place.replace("sqlite:///work.db", f"sqlite:///{tmp_path}/work.db")
    read = 'print(spark.read.format("tablequeue").options(**place, queue="orders", table="queue").load().count())'
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    process = subprocess.run(
        [sys.executable, "-c", "\n".join([session, place, read])],
        cwd=tmp_path,
        env=settings | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
    )
    assert (process.returncode, process.stdout.strip()) == (0, "100"), process.stderr
