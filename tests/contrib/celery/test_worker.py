"""A real worker of Celery, whose broker and results are in one database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from celery import chord, group
from celery.exceptions import ChordError

from tests.contrib.celery.checks import application
from tests.contrib.celery.test_backend import EACH
from tests.contrib.kombu.crashes import until, worker

APP = "tests.contrib.celery.app"
PATIENCE = 60.0


@EACH
def test_canvas(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results, groups and chords, in each other, with errors; and a process that is killed in the middle of a chord."""
    notes, killed = tmp_path / "notes", tmp_path / "killed"
    monkeypatch.setenv("TABLEQUEUE_CELERY_URL", url)
    monkeypatch.setenv("KILLED", str(killed))
    with worker("prefork", "-c", "2", app=APP), application(url) as app:

        def task(name: str, *args: Any) -> Any:
            return app.signature(name, args)

        def total_of(*header: Any) -> Any:
            return chord(header, task("total"), app=app)

        def result_of(signature: Any) -> Any:
            return signature.apply_async().get(timeout=PATIENCE)

        # First: what kills.
        counted = chord([task("add", number, number) for number in range(3)], task("note", str(notes)), app=app)
        counted.apply_async()
        until(notes.exists, "the callback has run")
        assert killed.exists()

        adding = [task("add", number, number) for number in range(5)]
        assert result_of(task("add", 1, 2)) == 3
        assert result_of(group(adding, app=app)) == [0, 2, 4, 6, 8]
        assert result_of(total_of(*adding)) == 20
        assert result_of(total_of(group(adding[1:3], app=app), adding[4]) | task("add", 1)) in (9, 15)
        assert result_of(group(adding, app=app) | task("total") | task("add", 1)) == 21
        assert result_of(total_of(task("split", 1), adding[1])) == 5
        with pytest.raises((ValueError, ChordError), match="odd"):
            result_of(total_of(task("refuse", "odd"), adding[1]))
        assert notes.read_text() == "[0, 2, 4]\n", "the callback has run once"
