"""Plots as SVG, for a light or dark page: all that is not coloured has the colour of the surrounding text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from unicodedata import east_asian_width

from tablequeue.spark.reports.marks import Mark, counts, moments, number, seconds

# Colours that colour-blind people can distinguish, on white and on black.
BLUE, ORANGE, GREEN, RED = "#3b82c4", "#e08a1e", "#3a9d6a", "#c9485b"

# As wide as a phone, on which the letters have their size.
_WIDTH, _HEIGHT = 380, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 356, 22, 160  # the edges of the axes
_BAR = 20
_LETTER = 5.6  # the width of a letter, more or less
_LONGEST = 28  # a name's letters
_WIDTHS = (2.8, 2.0, 1.2)  # a line under another one stays visible beside it


@dataclass(frozen=True)
class _Axis:
    """The values from `low` to `high` between two places. `bend` is what is even along the axis."""

    low: float
    high: float
    start: float
    end: float
    marks: Sequence[Mark]
    bend: Callable[[float], float] = float

    def at(self, value: float) -> float:
        low, high = self.bend(self.low), self.bend(self.high)
        return round(self.start + (self.end - self.start) * (self.bend(value) - low) / (high - low), 1)


def bars(names: Sequence[str], values: Sequence[float], label: str, color: str = BLUE) -> str:
    """Return horizontal bars, the first name on top."""
    shown = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in names]
    left = 12 + max(map(_length, shown))
    rows = max(len(names), 4)  # so that a single bar does not fill the plot
    bottom = 8 + _BAR * rows
    x = _Axis(0, max(*values, 0) or 1, left, _WIDTH - 24 - max(_length(number(value)) for value in values), ())
    marks = [mark for mark in counts(values, x.high, 5) if x.at(mark.value) < _WIDTH]
    drawn = []
    for row, (name, value) in enumerate(zip(shown, values, strict=True)):
        y, end = 8 + _BAR * row, max(x.at(value), left)
        drawn.append(f'<rect x="{left:.1f}" y="{y + 3}" width="{end - left:.1f}" height="14" fill="{color}"/>')
        drawn += [_text(left - 6, y + 14, name, "end"), _text(end + 4, y + 14, number(value), "start")]
    frame = [_path(f"M{left:.1f} 8V{bottom}H{_WIDTH - 12}"), *_under(x, marks, bottom, label, (left + _WIDTH - 12) / 2)]
    return _svg([*drawn, *frame], label, bottom + 34)


def lines(
    x: Sequence[Any],
    span: Any,
    series: Mapping[str, Sequence[float | None]],
    y_label: str,
    colors: Sequence[str] = (ORANGE, BLUE, GREEN),
    *,
    x_label: str = "",
    level: float | None = None,
    times: bool = False,
) -> str:
    """One staircase for each series over the same x, which are numbers or times, in their order.

    A value stands for what was from its x on, for `span`: so one alone is a line as long as the axis, and where an x is
    missing there is a gap. `level` is where a dashed line is drawn, the target. `times`: what is shown are seconds, few
    or many.
    """
    across, label = _across(x, span, x_label)
    shown = [value for values in series.values() for value in values if value is not None]
    up = _seconds([*shown, *([] if level is None else [level])]) if times else _from_zero(shown)
    drawn, legend = [], []
    for (name, values), color, width in zip(series.items(), colors, _WIDTHS, strict=False):
        # The round cap makes a dot of a step that is too short to be seen.
        style = f'stroke="{color}" stroke-width="{width}" stroke-linecap="round" stroke-linejoin="round"'
        drawn.append(_path(_steps(across, up, x, span, values), style))
        legend.append((name, style))
    if level is not None:
        style = 'stroke="currentColor" stroke-dasharray="4 3"'
        drawn.append(_path(f"M{_LEFT} {up.at(level)}H{_RIGHT}", style))
        legend.append(("target", style))
    return _svg([*_frame(across, up, label, y_label), *drawn, *_legend(legend)], y_label)


def areas(x: Sequence[Any], span: Any, series: Mapping[str, Sequence[float]], y_label: str) -> str:
    """Return stacked areas with steps. A value is valid from its x to the next one; the last one for `span`."""
    across, label = _across(x, span, "")
    edges = [across.at(_plain(edge)) for edge in (*x, x[-1] + span)]
    tops = [[0.0] * len(x)]
    for values in series.values():
        tops.append([low + value for low, value in zip(tops[-1], values, strict=True)])
    up = _from_zero(tops[-1])
    drawn, legend = [], []
    for name, floor, top, color in zip(series, tops, tops[1:], (ORANGE, BLUE), strict=False):
        style = f'fill="{color}" fill-opacity=".8" stroke="none"'
        back = "".join(f"V{up.at(low)}H{edge}" for low, edge in zip(reversed(floor), reversed(edges[:-1]), strict=True))
        there = "".join(f"V{up.at(high)}H{edge}" for high, edge in zip(top, edges[1:], strict=True))
        drawn.append(_path(f"M{edges[0]} {up.at(floor[0])}{there}{back}Z", style))
        legend.append((name, f'stroke="{color}" stroke-width="7"'))
    return _svg([*_frame(across, up, label, y_label), *drawn, *_legend(legend)], y_label)


# -- axes ------------------------------------------------------------------------------------------------------------


def _across(x: Sequence[Any], span: Any, label: str) -> tuple[_Axis, str]:
    """Return the axis from the first x to the end of the last one, and its label: that of times names their days."""
    first, end = x[0], x[-1] + span
    if isinstance(first, int | float):
        marks = [mark for mark in counts([first], end) if mark.value >= first]
    else:
        marks = moments(first, end)
        days = sorted({f"{day:%Y-%m-%d}" for day in (first, end - type(span).resolution)})
        label = f"{' to '.join(days)}, UTC"
    return _Axis(_plain(first), _plain(end), _LEFT, _RIGHT, marks), label


def _from_zero(values: Sequence[float]) -> _Axis:
    high = max(values, default=0) * 1.05 or 1
    return _Axis(0, high, _BOTTOM, _TOP, counts(values, high))


def _seconds(values: Sequence[float]) -> _Axis:
    low, high, marks = seconds(values)
    return _Axis(low, high, _BOTTOM, _TOP, marks, lambda value: math.log1p(value / 1e-3))


def _plain(value: Any) -> float:
    return value if isinstance(value, int | float) else value.timestamp()


def _steps(across: _Axis, up: _Axis, x: Sequence[Any], span: Any, values: Sequence[float | None]) -> str:
    """Return a line with steps, with a gap where an x is not the end of the last one, or a value is missing."""
    path, end = "", None
    for at, value in zip(x, values, strict=True):
        if value is not None:
            start = f"V{up.at(value)}" if end == at else f"M{across.at(_plain(at))} {up.at(value)}"
            path += f"{start}H{across.at(_plain(at + span))}"
            end = at + span
    return path


# -- shapes ----------------------------------------------------------------------------------------------------------


def _frame(across: _Axis, up: _Axis, x_label: str, y_label: str) -> Iterator[str]:
    for mark in up.marks:
        place = up.at(mark.value)
        yield _path(f"M{_LEFT} {place}H{_RIGHT}", 'stroke="currentColor" stroke-opacity=".25"')
        yield _text(_LEFT - 6, place + 3.5, mark.text, "end")
    yield _path(f"M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}", 'class="axes" stroke="currentColor"')
    yield from _under(across, across.marks, _BOTTOM, x_label, (_LEFT + _RIGHT) / 2)
    if y_label:
        middle = (_TOP + _BOTTOM) / 2
        yield f'<g transform="rotate(-90 10 {middle})">{_text(10, middle + 3, y_label)}</g>'


def _under(axis: _Axis, marks: Sequence[Mark], bottom: float, label: str, middle: float) -> Iterator[str]:
    for mark in marks:
        place = axis.at(mark.value)
        yield _path(f"M{place} {bottom}v3.5")
        yield _text(place, bottom + 14, mark.text)
    yield _text(middle, bottom + 29, label)


def _legend(names: Sequence[tuple[str, str]]) -> Iterator[str]:
    at = float(_LEFT)
    for name, style in names:
        yield _path(f"M{at:.1f} 9h18", style)
        yield _text(at + 23, 12.5, name, "start")
        at += 36 + _length(name)


def _path(shape: str, style: str = 'stroke="currentColor"') -> str:
    return f'<path d="{shape}" {style}/>' if "fill=" in style else f'<path d="{shape}" fill="none" {style}/>'


def _text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>' if words else ""


def _length(words: str) -> float:
    return _LETTER * sum(2 if east_asian_width(letter) in "WF" else 1 for letter in words)


def _svg(shapes: Sequence[str], label: str, height: float = _HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}" fill="currentColor" '
        f'font-family="sans-serif" font-size="10.5">{"".join(shapes)}</svg>'
    )
