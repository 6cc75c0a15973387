"""Marks of the axes of plots: where they are, and what stands there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

# The most marks of an axis.
MOST = 7
# Seconds that an axis of times has a mark for.
_SECONDS = (0, 1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, *(days * 86400 for days in (1, 7, 30, 365)))
# The least number of seconds for each unit, its length in seconds, and its name.
_UNITS = (
    (86400, 86400, "d"),
    (3600, 3600, "h"),
    (60, 60, "min"),
    (1, 1, "s"),
    (1e-9, 1e-3, "ms"),
    (-math.inf, 1, "s"),
)
# The steps between two marks of a time axis, of less than a day, in seconds.
_WITHIN_A_DAY = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    *(h * 3600 for h in (1, 2, 4, 6, 12)),
)


class Mark(NamedTuple):
    value: float
    text: str


def number(value: float) -> str:
    """Return a number with commas between thousands, or with three digits if it is small."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit."""
    size, unit = next((size, unit) for least, size, unit in _UNITS if seconds >= least)
    return f"{number(seconds / size)} {unit}"


def counts(values: Sequence[float], high: float, most: int = MOST) -> list[Mark]:
    """Return up to `most` marks from 0 to `high`, whole ones if the values are whole."""
    least = 1 if all(value == int(value) for value in values) else 0
    power = 10 ** math.floor(math.log10(high / most))
    step = next(size for size in (times * power for times in (1, 2, 5, 10, 20)) if size >= least and high / size < most)
    return [Mark(place * step, number(round(place * step, 9))) for place in range(int(high / step) + 1)]


def seconds(values: Sequence[float]) -> tuple[float, float, list[Mark]]:
    """Return the mark below and the mark above these seconds, and the marks between them."""
    low, high = min(values, default=0), max(values, default=0)
    bottom = max((mark for mark in _SECONDS if mark < low), default=0)
    top = min((mark for mark in _SECONDS if mark > high), default=2 * high)
    return bottom, top, [Mark(mark, duration(mark)) for mark in _SECONDS if bottom <= mark <= top]


def moments(first: datetime, end: datetime) -> list[Mark]:
    """Return marks at even times, days, months or years, the most that MOST allows."""
    length = (end - first).total_seconds()
    for size, marks in _steps(first, end):
        # Those of a step that is far too short are not even counted.
        if length / size <= MOST:
            found = [time for time in marks() if first <= time <= end]
            if len(found) <= MOST:
                return [Mark(time.timestamp(), _words(time, size)) for time in found]
    raise AssertionError("the last step is longer than any time")


def _steps(first: datetime, end: datetime) -> Iterator[tuple[float, Callable[[], Iterator[datetime]]]]:
    """Yield steps, and the times at which they end; these begin before `first`."""
    day = first.replace(hour=0, minute=0, second=0, microsecond=0)
    for step in _WITHIN_A_DAY:
        yield step, partial(_even, first, end, day, timedelta(seconds=step))
    for days in (1, 2, 5, 10):
        yield days * 86400, partial(_days, day, end, days)
    for months in (1, 2, 3, 6, *(12 * years for years in (1, 2, 5, 10, 50, 100, 1000, 10_000))):
        yield months * 30 * 86400, partial(_months, first, end, months)


def _days(day: datetime, end: datetime, number: int) -> Iterator[datetime]:
    """Yield every so many days of each month, from its first one on."""
    for time in _even(day, end, day, timedelta(days=1)):
        if (time.day - 1) % number == 0 and (number == 1 or time.day < 31):
            yield time


def _even(first: datetime, end: datetime, start: datetime, step: timedelta) -> Iterator[datetime]:
    time = start + (first - start) // step * step
    while time <= end:
        yield time
        time += step


def _months(first: datetime, end: datetime, step: int) -> Iterator[datetime]:
    month = first.year * 12 // step * step
    while month <= end.year * 12 + 11:
        if month >= 12:
            yield datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC)
        month += step


def _words(time: datetime, size: float) -> str:
    if size >= 12 * 30 * 86400:
        return f"{time:%Y}"
    if size >= 30 * 86400:
        return f"{time:%b %Y}"
    if size >= 86400 or not (time.hour or time.minute or time.second or time.microsecond):
        return f"{time:%d %b}"
    if size >= 60:
        return f"{time:%H:%M}"
    return f"{time:%H:%M:%S}" + (f".{time.microsecond // 100_000}" if time.microsecond else "")
