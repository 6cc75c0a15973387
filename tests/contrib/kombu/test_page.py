"""The programs of docs/celery.md run. They need Celery, which `make check` does not have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "celery.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "shop"}
    programs = re.findall(r"^```py\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(programs) == 2
    for program in programs:
        exec(compile(program, str(PAGE), "exec"), namespace)
    app = namespace["app"]
    app.close()  # type: ignore[attr-defined]
