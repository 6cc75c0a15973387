"""`tablequeue report` as a user runs it, and its page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tablequeue import connect
from tablequeue.cli import main
from tablequeue.spark.reports import sections
from tablequeue.spark.reports.lake import open_lake

HOSTILE = "<script>alert('1')</script> $\\frac{ 漢"
DOCUMENT = Path(__file__).parents[2] / "docs" / "report.md"
REPORTS = "overview times hours throughput backlog errors workers lost consumers".split()
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'work.db'}"


def run(url: str, *words: object, **environment: str | None) -> Result:
    result = CliRunner().invoke(main, ["report", *map(str, words)], env={"TABLEQUEUE_URL": url, **environment})
    assert "Traceback" not in result.output
    return result


def refusal(url: str, *words: object, **environment: str | None) -> str:
    """The cause; there must be a remedy after it."""
    result = run(url, *words, **environment)
    assert result.exit_code == 1, result.output
    cause, remedy = result.stderr.splitlines()
    assert remedy
    return cause


@pytest.mark.timeout(900)  # half a minute when nothing else runs
@pytest.mark.usefixtures("quick_java")
def test_from_the_queue_to_the_page(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(url, name=HOSTILE) as database:
        emails = database.create_queue("emails", lease=600)
        emails.push_many(range(50))
        first, *others = emails.pop_many(40)
        first.fail(HOSTILE)
        emails.complete_many(others)
        database.create_queue("secret", history="none").push("not to be seen")
    program = [sys.executable, "-m", "tablequeue", "report", "--json", "--lake", "lake", "--target-wait", "5"]
    process = subprocess.run(
        program, cwd=tmp_path, env={**os.environ, "TABLEQUEUE_URL": url}, capture_output=True, text=True
    )
    assert (process.returncode, process.stderr) == (0, ""), process.stderr
    row, place = map(json.loads, process.stdout.splitlines())
    counts = {name: row[name] for name in ("queue", "messages", "finished", "backlog", "dead", "lost")}
    assert counts == {"queue": "emails", "messages": 50, "finished": 39, "backlog": 11, "dead": 0, "lost": 0}
    assert [time["messages"] for time in row["times"]] == [39, 39]
    assert [(error["failures"], error["finished"]) for error in row["errors"]] == [(1, 0)]
    page = (tmp_path / place["report"]).read_text("utf-8")
    assert not re.search(r"<script|\bsrc=|https?://(?!www\.w3\.org|purl\.org|creativecommons)", page)
    assert "not to be seen" not in page
    monkeypatch.chdir(tmp_path)
    exec(re.findall(r"^```py\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE)[0], {})
    for name in REPORTS:
        assert [*(tmp_path / place["tables"] / name).glob("*.parquet")], name
    assert not [
        file for file in (tmp_path / "lake").rglob("*") if file.is_file() and b"not to be seen" in file.read_bytes()
    ]


def test_a_page_of_nothing() -> None:
    found: dict[str, Any] = {name: [] for name in REPORTS}
    assert "There are no messages yet." in sections.page(found, 10, 1, NOW)


def test_a_page_of_everything_escapes_it() -> None:
    hour = {"p50": 0.0, "p95": 0.25, "p99": 7200.0, "max": 1e6, "mean": 1.0, "messages": 4}
    overview = dict.fromkeys(("messages", *sections.COUNTS, "producers", "consumers"), 4)
    worker = {"first_at": NOW, "last_at": NOW, "per_second": None, "retried": None, "failures": 1, "expired": 1}
    found: dict[str, Any] = {
        "overview": [{**overview, "first_at": NOW - timedelta(hours=1), "last_at": NOW}],
        "times": [{"time": time, **hour} for time in ("wait", "run")],
        "hours": [{"time": time, "hour": NOW, **hour} for time in ("wait", "run")],
        "throughput": [{"at": NOW, "pushed": 3, "popped": 1, "finished": 1, "failed": 1, "dead": 0, "lost": 0}],
        "backlog": [{"at": NOW, "backlog": 3, "waiting": 2}],
        "errors": [{"error": HOSTILE, "failures": 1, "messages": 1, "finished": 0, "dead": 0}],
        "workers": [
            {"role": role, "name": f"{HOSTILE}{number}", "messages": number, "share": 0.5, **worker}
            for role in ("producer", "consumer")
            for number in range(30)
        ],
        "lost": [{"id": 1, "consumer": HOSTILE, "error": HOSTILE}],
        "consumers": [{"hour": NOW, "arrival_rate": None, "service_rate": 2.0, "consumers": 1, "needed": 3}],
    }
    two = {name: [{"queue": queue, **row} for queue in ("a", "b") for row in rows] for name, rows in found.items()}
    page = sections.page(two, 10, 60, NOW)
    assert "<script" not in page
    assert page.count("<svg") == 16
    assert "20 of 60" in page
    assert "18 others" in page
    assert "3 consumers would have kept that under 10 s" in page


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_no_history(url: str, tmp_path: Path) -> None:
    with connect(url) as database:
        database.create_queue("secret", history="none")
    assert "No queue of this database keeps a history" in refusal(url, "--lake", tmp_path / "lake")
    assert "'secret' keeps no history" in refusal(url, "secret", "--lake", tmp_path / "lake")
    assert "no queue 'secrets'" in refusal(url, "secrets", "--lake", tmp_path / "lake")


def test_no_java(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(url) as database:
        database.create_queue("emails")
    monkeypatch.setattr("tablequeue.spark.java.find_spec", lambda name: None)
    assert "Java 17 or newer" in refusal(url, "--lake", tmp_path / "lake", JAVA_HOME=None, PATH="")


def test_a_package_is_missing(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tablequeue.spark.reports")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = run(url, "--lake", tmp_path / "lake")
    assert "the package jinja2" in result.stderr
    assert "pip install 'tablequeue[spark,report]'" in result.stderr


def test_the_command_line_starts_without_spark() -> None:
    program = "import sys, tablequeue.cli; print({'pyspark', 'matplotlib', 'pyarrow'} & {*sys.modules})"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "set()\n"


def test_a_lake_that_cannot_be(url: str, tmp_path: Path) -> None:
    with connect(url) as database:
        database.create_queue("emails")
    (tmp_path / "file").touch()
    assert run(url, "--lake", tmp_path / "file").exit_code == 2
    assert "The system refused" in refusal(url, "--lake", tmp_path / "file" / "lake")
    with open_lake(tmp_path / "lake", "postgresql://elsewhere/db"):
        assert "Another report" in refusal(url, "--lake", tmp_path / "lake")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--lake", "x", "--since", "yesterday"],
        ["--lake", "x", "--since", "2026-01-01"],
        ["--lake", "x", "--since", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z"],
        *(["--lake", "x", "--target-wait", seconds] for seconds in ("-1", "nan", "inf")),
    ],
)
def test_wrong_usage(url: str, words: list[str]) -> None:
    assert run(url, *words).exit_code == 2
