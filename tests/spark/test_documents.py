"""The Spark page: its programs run, one after another."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_page_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Spark's workers are elsewhere than this process: its paths are made whole.
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text("utf-8")
    namespace: dict[str, Any] = {"spark": spark}
    for block in re.finditer(r"^```py\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        program = block[1].replace("sqlite:///work.db", f"sqlite:///{tmp_path}/work.db")
        program = re.sub(r'"((?:lake|checkpoints)(?:/\w+)?)"(?=\)| *\))', rf'"{tmp_path}/\1"', program)
        line = text.count("\n", 0, block.start()) + 1
        exec(compile("\n" * line + program, str(PAGE), "exec"), namespace)
