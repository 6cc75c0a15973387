"""Fixtures: `db` is a fresh SQLite database, `run` the command line on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tablequeue import Database, connect
from tablequeue.cli import main
from tests.cli.support import Run


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'work.db'}"


@pytest.fixture
def db(url: str) -> Database:
    return connect(url)


@pytest.fixture
def run(url: str) -> Run:
    def run(
        *words: object, input: str | bytes | None = None, code: int = 0, env: Mapping[str, str] | None = None
    ) -> Result:
        environment = {"TABLEQUEUE_URL": url, **(env or {})}
        result = CliRunner().invoke(main, [*map(str, words)], input=input, env=environment)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run
