"""`tablequeue report` as a user runs it, and its page."""

from __future__ import annotations

import base64
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
from playwright.sync_api import Locator, Page, sync_playwright

from tablequeue import ALL, connect
from tablequeue.cli import main
from tablequeue.spark.reports import job, sections
from tablequeue.spark.reports.lake import open_lake
from tests.support import claimed
from tests.web.conftest import chromium

HOSTILE = "<script>alert('1')</script> $\\frac{ 漢"
DOCUMENT = Path(__file__).parents[2] / "docs" / "report.md"
REPORTS = "overview times spans throughput backlog errors workers lost consumers".split()
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


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


@pytest.fixture
def emails(url: str) -> None:
    with connect(url, name=HOSTILE) as database:
        emails = database.create_queue("emails", lease=600)
        emails.push_many(range(50))
        first, *others = emails.pop_many(40)
        first.fail(HOSTILE)
        emails.complete_many(others)
        database.create_queue("secret", history="none").push("not to be seen")


def process(url: str, folder: Path, *program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A report by a process of its own."""
    words = [sys.executable, *(program or ("-m", "tablequeue")), "report", "--json", "--lake", "lake"]
    return subprocess.run(
        [*words, "--target-wait", "5"],
        cwd=folder,
        env={**os.environ, "TABLEQUEUE_URL": url, **environment},
        capture_output=True,
        text=True,
    )


def report(url: str, folder: Path, *program: str, **environment: str) -> list[dict[str, Any]]:
    """What it prints."""
    done = process(url, folder, *program, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def few(most: int) -> tuple[str, str]:
    """The program, with Spark for more messages than so many."""
    return "-c", f"from tablequeue.cli import main; from tablequeue.spark.reports import job; job.FEW = {most}; main()"


@pytest.mark.usefixtures("emails")
def test_from_the_queue_to_the_page(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, place = report(url, tmp_path, JAVA_HOME="/nowhere", PYTHONPATH=str(without(tmp_path, "pyspark")))
    counts = {name: row[name] for name in ("queue", "messages", "finished", "backlog", "dead", "lost")}
    assert counts == {"queue": "emails", "messages": 50, "finished": 39, "backlog": 11, "dead": 0, "lost": 0}
    assert [time["messages"] for time in row["times"]] == [39, 39]
    assert [(error["failures"], error["finished"]) for error in row["errors"]] == [(1, 0)]
    page = (tmp_path / place["report"]).read_text("utf-8")
    assert not re.search(r"<script|\bsrc=|https?://", page)
    assert "not to be seen" not in page
    monkeypatch.chdir(tmp_path)
    exec(re.findall(r"^```py\n(.*?)^```", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE)[0], {})
    for name in REPORTS:
        assert [*(tmp_path / place["tables"] / name).glob("*.parquet")], name
    assert not [
        file for file in (tmp_path / "lake").rglob("*") if file.is_file() and b"not to be seen" in file.read_bytes()
    ]


def without(folder: Path, *packages: str) -> Path:
    """A folder of packages that cannot be imported."""
    there = folder / "without"
    there.mkdir()
    for package in packages:
        (there / f"{package}.py").write_text(f"raise ImportError('not for a short history', name={package!r})")
    return there


@pytest.mark.nightly
@pytest.mark.timeout(900)  # half a minute when nothing else runs
@pytest.mark.usefixtures("quick_java", "emails")
def test_many_messages_by_spark(url: str, tmp_path: Path) -> None:
    """The same that DuckDB prints, of the same lake."""
    by_duck = report(url, tmp_path)
    assert report(url, tmp_path, *few(-1)) == by_duck


@pytest.mark.parametrize("messages", [0, 1])
def test_a_run_of_a_message_or_none(url: str, tmp_path: Path, messages: int) -> None:
    with connect(url) as database:
        queue = database.create_queue("emails")
        for number in range(messages):
            queue.push(number)
            claimed(queue).complete()
    assert run(url, "--lake", tmp_path / "lake").exit_code == 0
    page = (tmp_path / "lake" / "report.html").read_text("utf-8")
    assert page.count("<svg") == 6 * messages
    assert ("There are no messages yet." in page) == (messages == 0)


def test_the_sections_of_queues_are_linked(url: str, tmp_path: Path) -> None:
    names = ["a", "b & 'c'", "d"]
    with connect(url) as database:
        for name in names:
            database.create_queue(name).push("x")
    assert run(url, "--lake", tmp_path / "lake").exit_code == 0
    page = (tmp_path / "lake" / "report.html").read_text("utf-8")
    heads = dict(re.findall(r'<section id="([^"]+)">.*?<h2>(.*?)</h2>', page, re.DOTALL))
    links = [(heads[place], words) for place, words in re.findall(r'<a href="#([^"]+)">(.*?)</a>', page)]
    shown = ["a", "b &amp; &#39;c&#39;", "d"]
    assert links[:3] == [(name, name) for name in shown]
    assert links[3:] == [
        ("All queues", "All queues"),
        (shown[1], "next"),
        ("All queues", "All queues"),
        (shown[0], "previous"),
        (shown[2], "next"),
        ("All queues", "All queues"),
        (shown[1], "previous"),
    ]
    assert run(url, "d", "--lake", tmp_path / "one").exit_code == 0
    assert "<a href" not in (tmp_path / "one" / "report.html").read_text("utf-8")


def test_a_table_shows_that_it_scrolls(url: str, tmp_path: Path) -> None:
    """In Chromium, at the width of a phone: a shadow at each edge behind which there is more, and at no other one."""
    with connect(url) as database:
        for name in ("a", "b"):
            database.create_queue(name).push("x")
    assert run(url, "--lake", tmp_path / "lake").exit_code == 0
    with sync_playwright() as playwright, chromium(playwright) as browser:
        page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="light")
        page.goto((tmp_path / "lake" / "report.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page itself does not scroll"
        table = page.locator(".scroll").first
        assert edges(page, table) == (False, True)
        table.evaluate("table => table.scrollLeft = table.scrollWidth / 2 - table.clientWidth / 2")
        assert edges(page, table) == (True, True)
        table.evaluate("table => table.scrollLeft = table.scrollWidth")
        assert edges(page, table) == (True, False)
        page.set_viewport_size({"width": 1400, "height": 800})
        assert edges(page, table) == (False, False)


def edges(page: Page, table: Locator) -> tuple[bool, bool]:
    """Whether there is a shadow at the left and at the right edge: darker than the card, below the words."""
    picture = base64.b64encode(table.screenshot()).decode()
    left, right = page.evaluate(
        """async picture => {
            const image = new Image();
            image.src = 'data:image/png;base64,' + picture;
            await image.decode();
            const canvas = new OffscreenCanvas(image.width, image.height);
            const context = canvas.getContext('2d');
            context.drawImage(image, 0, 0);
            return [1, image.width - 2].map(x => context.getImageData(x, 3, 1, 1).data[0]);
        }""",
        picture,
    )
    return left < 220, right < 220


def test_a_bad_day_in_words() -> None:
    minutes = [NOON + timedelta(minutes=minute) for minute in range(60)]
    failed = [1 if n == 3 else 50 if 20 <= n < 30 else 0 for n in range(60)]
    backlog = [0 if n < 20 else (n - 19) * 200 if n < 30 else max(0, 2000 - (n - 29) * 300) for n in range(60)]
    workers = [
        {"role": "consumer", "name": name, "expired": expired, "holds": holds, "holds_since": holds and NOON}
        for name, expired, holds in (("a", 2, 0), ("b", 1_200, 1), ("c", 0, 1))
    ]
    workers[2]["holds_since"] = minutes[-1]
    mine: dict[str, Any] = {
        "throughput": [{"at": at, "failed": count} for at, count in zip(minutes, failed, strict=True)],
        "backlog": [{"at": at, "backlog": count} for at, count in zip(minutes, backlog, strict=True)],
        "errors": [{"error": "order … is bad", "failures": 1_001}],
        "workers": workers,
        "consumers": [{"hour": NOON, "needed": None, "consumers": 0}],
    }
    facts = {"dead": 1_234, "redriven": 1}
    times = {"run": {"max": 300.0}}
    assert [*sections._findings(facts, mine, times, 10, 60, minutes[-1] + timedelta(minutes=2))] == [
        "501 attempts failed, 90 % of them from 2026-11-28 12:20 to 2026-11-28 12:30.",
        "The most frequent error, with 1,001 failures: order … is bad",
        "The backlog was greatest at 2026-11-28 12:30, with 2,000 messages, and under a tenth of that at "
        "2026-11-28 12:36.",
        "1,234 dead letters wait, and 1 message was redriven.",
        "1,202 leases of b and a expired, and the messages were delivered again.",
        "b may hang: a message is in progress there since 2026-11-28 12:00, longer than any took.",
    ]
    mine |= {"throughput": [], "backlog": mine["backlog"][:22], "errors": [], "workers": [], "consumers": []}
    assert [*sections._findings({"dead": 0, "redriven": 0}, mine, {}, 10, 60, NOON)] == [
        "The backlog was greatest at 2026-11-28 12:22, with 400 messages, and 400 in the end."
    ]


def test_the_letters_of_plots_can_be_read_on_a_phone(url: str, tmp_path: Path) -> None:
    with connect(url) as database:
        queue = database.create_queue("emails", max_attempts=1)
        queue.push_many(range(3))
        claimed(queue).fail("order 1 is bad")
        assert queue.redrive(ALL) == 1
        claimed(queue).complete()
    assert run(url, "--lake", tmp_path / "lake").exit_code == 0
    with sync_playwright() as playwright, chromium(playwright) as browser:
        for width in (390, 1280):
            page = browser.new_page(viewport={"width": width, "height": 800})
            page.goto((tmp_path / "lake" / "report.html").as_uri())
            assert page.locator("li", has_text="0 dead letters wait, and 1 message was redriven.").count() == 1
            heights = page.evaluate(
                "[...document.querySelectorAll('svg text')].map(text => text.getBoundingClientRect().height)"
            )
            assert min(heights) > 10, "letters of ten pixels"


def test_a_page_of_nothing() -> None:
    found: dict[str, Any] = {name: [] for name in REPORTS}
    assert "There are no messages yet." in sections.page(found, 10, 1, 1, NOW)


def test_a_page_of_everything_escapes_it() -> None:
    hour = {"p50": 0.0, "p95": 0.25, "p99": 7200.0, "max": 1e6, "mean": 1.0, "messages": 4}
    overview = dict.fromkeys(("messages", *sections.COUNTS, "producers", "consumers"), 4)
    worker = {"first_at": NOW, "last_at": NOW, "per_second": None, "retried": None, "failures": 1, "expired": 1}
    worker |= {"holds_since": NOW - HOUR}
    found: dict[str, Any] = {
        "overview": [{**overview, "first_at": NOW - timedelta(hours=1), "last_at": NOW}],
        "times": [{"time": time, **hour} for time in ("wait", "run")],
        "spans": [{"time": time, "at": NOW, **hour} for time in ("wait", "run")],
        "throughput": [{"at": NOW, "pushed": 3, "popped": 1, "finished": 1, "failed": 1, "dead": 0, "lost": 0}],
        "backlog": [{"at": NOW, "backlog": 3, "waiting": 2}],
        "errors": [{"error": HOSTILE, "failures": 1, "messages": 1, "finished": 0, "dead": 0, "example": HOSTILE * 2}],
        "workers": [
            {"role": role, "name": f"{HOSTILE}{number}", "messages": number, "share": 0.5, **worker, "holds": holds}
            for role, holds in (("producer", None), ("consumer", 1))
            for number in range(30)
        ],
        "lost": [{"id": 1, "consumer": HOSTILE, "error": HOSTILE}],
        "consumers": [
            {"hour": NOW + hours * HOUR, "arrival_rate": None, "service_rate": 2.0, "consumers": 1, "needed": 3}
            for hours in range(3)
        ],
    }
    two = {name: [{"queue": queue, **row} for queue in ("a", "b") for row in rows] for name, rows in found.items()}
    page = sections.page(two, 10, 60, 60, NOW + timedelta(days=20))
    assert "<script" not in page
    assert page.count("<svg") == 16
    assert "20 of 60" in page
    assert page.count("and 27 other consumers may hang") == 2
    assert "18 others" in page
    assert "3 consumers would have kept 95 % of the waits under 10 s" in page


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
    monkeypatch.setattr(job, "FEW", -1)
    assert "Java 17 or newer" in refusal(url, "--lake", tmp_path / "lake", JAVA_HOME=None, PATH="")


def test_a_package_is_missing(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tablequeue.spark.reports")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = run(url, "--lake", tmp_path / "lake")
    assert "the package jinja2" in result.stderr
    assert "pip install 'tablequeue[report]'" in result.stderr


@pytest.mark.usefixtures("emails")
def test_many_messages_need_spark(url: str, tmp_path: Path) -> None:
    done = process(url, tmp_path, *few(49), PYTHONPATH=str(without(tmp_path, "pyspark")))
    refused = json.loads(done.stderr)
    assert done.returncode == 1
    assert "needs the package pyspark" in refused["error"]
    assert "pip install 'tablequeue[spark,report]'" in refused["remedy"]


def test_the_command_line_starts_without_spark() -> None:
    program = "import sys, tablequeue.cli; print({'pyspark', 'duckdb', 'pyarrow'} & {*sys.modules})"
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
