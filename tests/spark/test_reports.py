"""Each report on a tiny table whose answer is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tablequeue.spark import reports
from tablequeue.spark.reports import page

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = (
    "producer string, consumer string, attempts int, pushed_at timestamp, first_popped_at timestamp, "
    "popped_at timestamp, finished_at timestamp"
)


def second(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.fixture(scope="module")
def history(spark: Any) -> Any:
    rows = [
        ("w1", "r1", 1, second(0), second(1), second(1), second(1.5)),
        ("w1", "r1", 1, second(0), second(2), second(2), second(2.5)),
        ("w1", "r2", 2, second(1), second(1), second(9), second(10)),
        ("w2", "r2", 1, second(2), second(2), second(2), None),  # claimed, never acknowledged
    ]
    return spark.createDataFrame(rows, COLUMNS)


def rows_of(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def test_times(history: Any) -> None:
    wait, run = rows_of(reports.times(history))
    assert (wait["time"], wait["messages"], wait["mean"], wait["p50"], wait["max"]) == ("wait", 4, 0.75, 0.5, 2.0)
    assert (run["time"], run["messages"], run["p50"], run["max"]) == ("run", 3, 0.5, 1.0)
    assert run["mean"] == pytest.approx(2 / 3)


def test_throughput(history: Any) -> None:
    start = rows_of(reports.throughput(history))[0]["second"]
    found = {
        (row["second"] - start).total_seconds(): (row["pushed"], row["popped"], row["finished"])
        for row in rows_of(reports.throughput(history))
    }
    assert found == {0: (2, 0, 0), 1: (1, 2, 1), 2: (1, 2, 1), 10: (0, 0, 1)}


def test_workers(history: Any) -> None:
    found = {
        row["name"]: (row["role"], row["messages"], row["share"], row["per_second"], row["retried"], row["run_p50"])
        for row in rows_of(reports.workers(history))
    }
    assert found == {
        "w1": ("producer", 3, 0.75, 3.0, None, None),
        "w2": ("producer", 1, 0.25, None, None, None),
        "r1": ("consumer", 2, 0.5, 2.0, 0, 0.5),
        "r2": ("consumer", 2, 0.5, None, 1, 1.0),
    }


def test_the_page_holds_everything_and_escapes_it() -> None:
    hostile = "<script>alert(1)</script>"
    sections = [page.Section(hostile, hostile, [page.bars([hostile], [1.0], "x")], [{hostile: hostile, "n": 1234}])]
    html = page.render(hostile, hostile, {hostile: 1}, sections)
    assert "<script" not in html
    assert "1,234" in html
    assert "<svg" in html
    assert "src=" not in html.replace("xmlns", ""), "nothing is loaded from outside"
