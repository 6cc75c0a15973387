"""The plots of a report: their axes are as long as what they show, be it a second or years."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.etree import ElementTree

import pytest

from tablequeue.spark.reports import plots, sections
from tablequeue.spark.reports.job import SPANS
from tablequeue.spark.reports.marks import moments

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg)


def pieces(svg: str, style: str) -> list[list[tuple[float, float]]]:
    """The pieces of the first path with that style, as their corners."""
    found = next(shape for shape, rest in re.findall(r'<path d="([^"]+)"([^>]*)>', svg) if style in rest)
    drawn: list[list[tuple[float, float]]] = []
    for letter, numbers in re.findall(r"([MHV])([^MHVZ]+)", found):
        values = [float(value) for value in numbers.split()]
        if letter == "M":
            drawn.append([(values[0], values[1])])
        else:
            x, y = drawn[-1][-1]
            drawn[-1].append((values[0], y) if letter == "H" else (x, values[0]))
    return drawn


def across(svg: str) -> tuple[float, float]:
    """Where the axes begin and end."""
    ((start, _, end),) = pieces(svg, 'class="axes"')
    return start[0], end[0]


def times_of(start: datetime, span: timedelta, number: int) -> list[datetime]:
    return [start + n * span for n in range(number)]


def test_a_page_of_one_hour_shows_that_hour() -> None:
    hour = {"messages": 9, "mean": 1.0, "p50": 0.5, "p95": 2.0, "p99": 3.0, "max": 4.0}
    overview = dict.fromkeys(("messages", *sections.COUNTS, "producers", "consumers"), 9)
    rates = {"arrival_rate": 2.0, "service_rate": 3.0, "consumers": 2, "needed": 1}
    found: dict[str, Any] = {
        "overview": [{**overview, "first_at": NOON, "last_at": NOON + timedelta(minutes=50)}],
        "times": [{"time": time, **hour} for time in ("wait", "run")],
        "spans": [{"time": time, "at": NOON, **hour} for time in ("wait", "run")],
        "throughput": [{"at": NOON, "pushed": 9, "popped": 9, "finished": 9, "failed": 0, "dead": 0, "lost": 0}],
        "backlog": [{"at": NOON, "backlog": 3, "waiting": 2}],
        "consumers": [{"hour": NOON, **rates}],
        **{name: [] for name in ("errors", "workers", "lost")},
    }
    page = sections.page(
        {name: [{"queue": "a", **row} for row in rows] for name, rows in found.items()}, 10, 3600, 3600, NOON
    )
    drawn = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawn) == 4, "what is known by the hour is a table: a line would have a single step"
    assert "<details" not in page
    for svg in drawn:
        said = texts(svg)
        assert {"12:00", "12:30", "13:00", "2026-11-20, UTC"} <= {*said}
        assert not {text for text in said if re.fullmatch(r"20\d\d|Jul", text)}


@pytest.mark.parametrize(
    ("start", "span", "number", "marks"),
    [
        (NOON, timedelta(seconds=1), 1, ["12:00:00", "12:00:00.2", "12:00:00.8", "12:00:01", "2026-11-20, UTC"]),
        (NOON, timedelta(seconds=1), 30, ["12:00:05", "12:00:30", "2026-11-20, UTC"]),
        (NOON, timedelta(seconds=1), 20, ["12:00:05", "12:00:20", "2026-11-20, UTC"]),
        (NOON, timedelta(seconds=10), 60, ["12:02", "12:10"]),
        (NOON, HOUR, 1, ["12:00", "12:10", "13:00", "2026-11-20, UTC"]),
        (NOON, HOUR, 24, ["16:00", "21 Nov", "12:00", "2026-11-20 to 2026-11-21, UTC"]),
        (NOON, HOUR, 7 * 24, ["21 Nov", "27 Nov", "2026-11-20 to 2026-11-27, UTC"]),
        (NOON, DAY, 100, ["Dec 2026", "Jan 2027", "Feb 2027"]),
        (NOON, DAY, 30, ["21 Nov", "26 Nov", "01 Dec", "16 Dec"]),
        (NOON, DAY, 1100, ["Jan 2027", "Jul 2027", "Jul 2029"]),
    ],
)
def test_what_stands_under_an_axis(start: datetime, span: timedelta, number: int, marks: list[str]) -> None:
    x = times_of(start, span, number)
    drawn = plots.lines(x, span, {"one": [1] * number}, ""), plots.areas(x, span, {"one": [1] * number}, "")
    for svg in drawn:
        said = texts(svg)
        assert not [mark for mark in marks if mark not in said], said


@pytest.mark.parametrize("seconds", SPANS)
@pytest.mark.parametrize("number", [1, 2, 3, 7, 50, 200, 1000, 10_000])
def test_every_length_has_marks(seconds: int, number: int) -> None:
    """Wherever it begins."""
    for offset in (timedelta(), timedelta(days=17, hours=5, minutes=13, seconds=51)):
        first, end = NOON + offset, NOON + offset + number * timedelta(seconds=seconds)
        marks = moments(first, end)
        assert 2 <= len(marks) <= 7, marks
        assert all(first.timestamp() <= mark.value <= end.timestamp() for mark in marks)
        assert len({mark.text for mark in marks}) == len(marks) or marks[-1].value - marks[0].value >= 86400


@pytest.mark.parametrize("first", [NOON, 0])
def test_a_value_is_as_long_as_what_it_stands_for(first: Any) -> None:
    span = HOUR if isinstance(first, datetime) else 1
    svg = plots.lines([first], span, {"one": [3]}, "", (plots.RED,))
    start, end = pieces(svg, plots.RED)[0]
    assert (start[0], end[0]) == pytest.approx(across(svg), abs=0.1)
    assert start[1] == end[1]


def test_nothing_is_drawn_where_nothing_is_known() -> None:
    hours = [0, 1, 2, 6, 7]  # nothing of 3 to 5, and no value of 1
    svg = plots.lines([NOON + n * HOUR for n in hours], HOUR, {"one": [1, None, 2, 3, 4]}, "", (plots.RED,))
    left, right = across(svg)
    hour = (right - left) / 8
    drawn = [[x for x, _ in piece] for piece in pieces(svg, plots.RED)]
    assert [(round((piece[0] - left) / hour), round((piece[-1] - left) / hour)) for piece in drawn] == [
        (0, 1),
        (2, 3),
        (6, 8),
    ]


def test_areas_are_stacked() -> None:
    svg = plots.areas([NOON, NOON + HOUR], HOUR, {"one": [2, 0], "two": [1, 4]}, "messages")
    (lower,), (upper,) = (pieces(svg, f'fill="{color}"') for color in (plots.ORANGE, plots.BLUE))
    assert {x for x, _ in lower} == {x for x, _ in upper} == {*across(svg), sum(across(svg)) / 2}
    zero, unit = lower[0][1], (lower[0][1] - min(y for _, y in lower)) / 2
    heights = {round((zero - y) / unit) for _, y in upper}
    assert ({round((zero - y) / unit) for _, y in lower}, heights) == ({0, 2}, {0, 2, 3, 4})


def test_what_a_plot_says_is_text() -> None:
    hostile = "<script>&\"'"
    for svg in (plots.bars([hostile], [1], hostile), plots.lines([0], 1, {hostile: [1]}, hostile)):
        assert ElementTree.fromstring(svg).tag == "svg"
        assert "<script" not in svg


def test_many_plots_are_short() -> None:
    """A page with twenty queues has a hundred plots."""
    x = times_of(NOON, HOUR, 200)
    assert len(plots.lines(x, HOUR, {name: [*range(200)] for name in "abc"}, "")) < 15_000


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
    assert "5,000" in texts(plots.bars(["one"], [12_000], ""))
