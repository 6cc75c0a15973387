"""The plots of a report: their axes are as long as what they show, be it a second or years. No Spark."""

from __future__ import annotations

import re
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tablequeue.spark.reports import plots, sections
from tablequeue.spark.reports.job import SPANS

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg)


def corners(path: str) -> list[list[tuple[float, float]]]:
    """Of each piece of a path."""
    pieces = re.sub("[Lz]", "", path).split("M")[1:]
    return [[(float(x), float(y)) for x, y in re.findall(r"(\S+) (\S+)", piece)] for piece in pieces]


def line(svg: str, color: str) -> list[list[tuple[float, float]]]:
    """The pieces of the line of that colour in the plot; there is another one in its legend, after it."""
    found = re.search(rf'<path d="([^"]+)" clip-path[^>]*stroke: {color}', svg)
    assert found
    return corners(found[1])


def across(svg: str) -> tuple[float, float]:
    """Where the axes begin and end."""
    found = re.search(r'id="patch_2">\s*<path d="([^"]+)"', svg)
    assert found
    places = [x for x, _ in corners(found[1])[0]]
    return min(places), max(places)


def times_of(start: datetime, span: timedelta, number: int) -> list[datetime]:
    return [start + n * span for n in range(number)]


def test_a_page_of_one_hour_shows_that_hour() -> None:
    hour = {"messages": 9, "mean": 1.0, "p50": 0.5, "p95": 2.0, "p99": 3.0, "max": 4.0}
    overview = dict.fromkeys(("messages", *sections.COUNTS, "producers", "consumers"), 9)
    rates = {"arrival_rate": 2.0, "service_rate": 3.0, "consumers": 2, "needed": 1}
    found: dict[str, Any] = {
        "overview": [{**overview, "first_at": NOON, "last_at": NOON + timedelta(minutes=50)}],
        "times": [{"time": time, **hour} for time in ("wait", "run")],
        "hours": [{"time": time, "hour": NOON, **hour} for time in ("wait", "run")],
        "throughput": [{"at": NOON, "pushed": 9, "popped": 9, "finished": 9, "failed": 0, "dead": 0, "lost": 0}],
        "backlog": [{"at": NOON, "backlog": 3, "waiting": 2}],
        "consumers": [{"hour": NOON, **rates}],
        **{name: [] for name in ("errors", "workers", "lost")},
    }
    page = sections.page(
        {name: [{"queue": "a", **row} for row in rows] for name, rows in found.items()}, 10, 3600, NOON
    )
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawn) == 6
    for svg in drawn:
        said = texts(svg)
        assert {"12:00", "12:30", "13:00", "2026-11-20, UTC"} <= {*said}
        assert not {text for text in said if re.fullmatch(r"20\d\d|Jul", text)}


@pytest.mark.parametrize(
    ("start", "span", "number", "marks"),
    [
        (NOON, timedelta(seconds=1), 1, ["12:00:00", "12:00:00.2", "12:00:00.8", "12:00:01", "2026-11-20, UTC"]),
        (NOON, timedelta(seconds=1), 20, ["12:00:05", "12:00:20", "2026-11-20, UTC"]),
        (NOON, timedelta(seconds=10), 60, ["12:02", "12:10"]),
        (NOON, HOUR, 1, ["12:00", "12:10", "13:00", "2026-11-20, UTC"]),
        (NOON, HOUR, 24, ["16:00", "21 Nov", "12:00", "2026-11-20 to 2026-11-21, UTC"]),
        (NOON, HOUR, 7 * 24, ["23 Nov", "27 Nov", "2026-11-20 to 2026-11-27, UTC"]),
        (NOON, DAY, 100, ["Dec 2026", "Jan 2027", "Feb 2027"]),
        (NOON, DAY, 1100, ["2027", "2028", "2029"]),
    ],
)
def test_what_stands_under_an_axis(start: datetime, span: timedelta, number: int, marks: list[str]) -> None:
    x = times_of(start, span, number)
    drawn = plots.lines(x, span, {"one": [1] * number}, ""), plots.areas(x, span, {"one": [1] * number}, "")
    for svg in drawn:
        said = [text.removesuffix(".0") for text in texts(svg)]
        assert not [mark for mark in marks if mark not in said], said


@pytest.mark.parametrize("seconds", SPANS)
@pytest.mark.parametrize("number", [1, 2, 3, 7, 50, 200, 1000])
def test_every_length_has_marks(seconds: int, number: int) -> None:
    """Wherever it begins, and no complaint of the library that draws."""
    span = timedelta(seconds=seconds)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for offset in (timedelta(), timedelta(days=17, hours=5, minutes=13, seconds=51)):
            said = texts(plots.lines(times_of(NOON + offset, span, number), span, {"one": [None] * number}, ""))
            marks = [text for text in said if re.search(r"^\d\d:|^\d\d \w{3}$|^\w{3} \d{4}$|^\d{4}$", text)]
            assert 2 <= len(marks) <= 8, marks


@pytest.mark.parametrize("first", [NOON, 0])
def test_a_value_is_as_long_as_what_it_stands_for(first: Any) -> None:
    span = HOUR if isinstance(first, datetime) else 1
    svg = plots.lines([first], span, {"one": [3]}, "", (plots.RED,))
    start, end = line(svg, plots.RED)[0]
    assert (start[0], end[0]) == pytest.approx(across(svg), abs=0.1)
    assert start[1] == end[1]


def test_nothing_is_drawn_where_nothing_is_known() -> None:
    hours = [0, 1, 2, 6, 7]  # nothing of 3 to 5, and no value of 1
    svg = plots.lines([NOON + n * HOUR for n in hours], HOUR, {"one": [1, None, 2, 3, 4]}, "", (plots.RED,))
    pieces = [[x for x, _ in piece] for piece in line(svg, plots.RED)]
    left, right = across(svg)
    hour = (right - left) / 8
    assert [(round((piece[0] - left) / hour), round((piece[-1] - left) / hour)) for piece in pieces] == [
        (0, 1),
        (2, 3),
        (6, 8),
    ]


def test_a_single_backlog_is_seen() -> None:
    svg = plots.areas([NOON], HOUR, {"one": [2]}, "messages")
    area = re.search(r'Collection_1">\s*<defs>\s*<path[^>]* d="([^"]+)"', svg)
    assert area
    xs = [x for x, _ in corners(area[1])[0]]
    assert (min(xs), max(xs)) == pytest.approx(across(svg), abs=0.1)


@pytest.mark.parametrize(
    ("values", "level", "marks"),
    [
        ([0.0008], None, ["0 s", "1 ms"]),
        ([0], None, ["0 s", "1 ms"]),
        ([3, 5], None, ["1 s", "10 s"]),
        ([1, 10], None, ["100 ms", "1 s", "10 s", "1 min"]),
        ([7200], 10, ["1 s", "10 s", "1 h", "6 h"]),
        ([0.002], 3600, ["1 ms", "1 h", "6 h"]),
        ([400 * 86400], None, ["365 d"]),
    ],
)
def test_times_have_a_mark_below_and_above(values: list[float], level: float | None, marks: list[str]) -> None:
    x = times_of(NOON, HOUR, len(values))
    said = texts(plots.lines(x, HOUR, {"one": values}, "", level=level, times=True))
    assert not [mark for mark in marks if mark not in said], said


def test_counts_have_whole_marks() -> None:
    for svg in (
        plots.lines([NOON], HOUR, {"one": [1]}, ""),
        plots.areas([NOON], HOUR, {"one": [1]}, ""),
        plots.bars(["one"], [2], ""),
    ):
        assert not [text for text in texts(svg) if re.fullmatch(r"\d*\.\d+", text)]
    assert "0.4" in texts(plots.lines([NOON], HOUR, {"one": [0.75]}, ""))
    assert "2,000" in texts(plots.bars(["one"], [12_000], ""))
