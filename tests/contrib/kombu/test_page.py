"""The programs and commands of docs/celery.md run. They need Celery, which `make check` does not have."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from tablequeue.cli import main
from tests.test_pages_are_current import printed

PAGE = Path(__file__).parents[3] / "docs" / "celery.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "shop"}
    programs = re.findall(r"^```py\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(programs) == 3
    for program in programs:
        exec(compile(program, str(PAGE), "exec"), namespace)
    app = namespace["app"]
    app.close()  # type: ignore[attr-defined]
    monkeypatch.setenv("TABLEQUEUE_URL", "sqlite:///shop.db")
    commands = [shlex.split(words, comments=True) for words, _ in printed(PAGE.read_text("utf-8"))]
    ran = [words for words in commands if words[-1] != "serve"]
    assert len(ran) == len(commands) - 1 >= 4
    for words in ran:
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, (words, result.output)
