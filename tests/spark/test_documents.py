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
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spark.md"


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
    session, place, *_ = BLOCK.findall(PAGE.read_text("utf-8"))
    read = 'print(spark.read.format("tablequeue").options(**place, queue="orders", table="queue").load().count())'
    assert printed_elsewhere("\n".join([session, place, read]), tmp_path) == "100"


def test_the_readme_runs_in_a_session_of_the_users(spark: Any, tmp_path: Path) -> None:
    [program] = [block for block in BLOCK.findall((ROOT / "README.md").read_text("utf-8")) if "SparkSession" in block]
    assert printed_elsewhere(program, tmp_path) == "1000"


def printed_elsewhere(program: str, folder: Path) -> str:
    """Return what a program prints that runs in an empty folder, without a setting of Spark. A fixture provides Java.

    Spark's own choice is the python3 of the path, which need not have tablequeue.
    """
    (folder / "python3").write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} -I -S "$@"\n')
    (folder / "python3").chmod(0o755)
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=settings | {"PATH": f"{folder}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()
