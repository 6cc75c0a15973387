"""The documents: the README's Python blocks run, and the tests that the guarantees name are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def blocks(text: str) -> list[tuple[int, str]]:
    """Each Python block, with the number of the line where it begins."""
    found = re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, block.start()) + 2, block[1]) for block in found]


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = blocks(README.read_text("utf-8"))
    assert programs, "the README has a Python block"
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "readme"}
    for line, program in programs:
        # The empty lines make a traceback point to the line of the README.
        exec(compile("\n" * (line - 1) + program, str(README), "exec"), namespace)


def test_the_guarantees_name_tests_that_are_there() -> None:
    rows = (ROOT / "docs" / "guarantees.md").read_text().splitlines()
    links = [link for row in rows for link in re.findall(r"\]\((\.\./tests/[^)]+)\)(?::((?: `\w+`,?)+))?", row)]
    assert len(links) > 10
    for path, names in links:
        text = (ROOT / "docs" / path).read_text()
        for name in re.findall(r"\w+", names):
            assert f"def {name}(" in text, f"{name} is not in {path}"
