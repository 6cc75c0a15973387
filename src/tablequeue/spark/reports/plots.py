"""Plots as SVG, for a light or dark page: all that is not coloured has the colour of the surrounding text."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import matplotlib as mpl
from matplotlib.dates import MINUTELY, SECONDLY, AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

# Colours that colour-blind people can distinguish, on white and on black.
BLUE, ORANGE, GREEN, RED = "#3b82c4", "#e08a1e", "#3a9d6a", "#c9485b"
_INK = "#888888"  # replaced by the colour of the text
mpl.rcParams.update(
    {
        "svg.fonttype": "none",  # text stays text: searchable, and small
        "svg.hashsalt": "tablequeue",  # the same plot is the same text in every run
        "text.parse_math": False,  # a name may have a $
        "timezone": "UTC",
        "font.family": "sans-serif",
        "axes.spines.top": False,
        "axes.spines.right": False,
        **{f"{part}.color": _INK for part in ("text", "xtick", "ytick")},
        "axes.edgecolor": _INK,
        "axes.labelcolor": _INK,
    }
)
_SIZE = (6.4, 2.8)
_LONGEST = 32  # a name's letters
_WIDTHS = (2.8, 2.0, 1.2)  # a line under another one stays visible beside it
_ROOM = 1.05  # above the highest value
_STEPS = (1, 2, 5, 10)  # between two marks, times a power of ten
# Seconds that an axis of times has a mark for.
_MARKS = (0, 1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, *(days * 86400 for days in (1, 7, 30, 365)))
# The formats of marks on a time axis whose distance is years, months, days, hours, minutes or seconds; and of the first
# mark of each longer unit.
_MARKED = ("%Y", "%b %Y", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S.%f")
_BEGUN = ("%Y", "%b %Y", "%d %b", "%d %b", "%H:%M", "%H:%M:%S")


# The least number of seconds for each unit, its length in seconds, and its name.
_UNITS = (
    (86400, 86400, "d"),
    (3600, 3600, "h"),
    (60, 60, "min"),
    (1, 1, "s"),
    (1e-9, 1e-3, "ms"),
    (-math.inf, 1, "s"),
)


def bars(names: Sequence[str], values: Sequence[float], label: str, color: str = BLUE) -> str:
    """Return horizontal bars, the first name on top."""
    rows = max(len(names), 4)  # so that a single bar does not fill the plot
    figure = Figure(figsize=(_SIZE[0], 0.8 + 0.28 * rows), layout="constrained")
    axes = figure.subplots()
    drawn = axes.barh(range(len(names)), values, height=0.7, color=color)
    axes.bar_label(drawn, [number(value) for value in values], padding=3, color=_INK, fontsize=9)
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.set_ylim(rows - 0.5, -0.5)
    axes.margins(x=0.12)
    _mark(axes.xaxis, values)
    axes.set_xlabel(label)
    return _svg(figure, label)


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
    figure, axes = _axes(x, span, x_label, y_label)
    for (name, values), color, width in zip(series.items(), colors, _WIDTHS, strict=False):
        # The round cap makes a dot of a step that is too short to be seen.
        axes.plot(*_steps(x, span, values), label=name, color=color, linewidth=width, solid_capstyle="round")
    shown = [value for values in series.values() for value in values if value is not None]
    if level is not None:
        axes.axhline(level, color=_INK, linestyle="--", linewidth=1, label="target")
        shown.append(level)
    if times:
        low, high = min(shown, default=0), max(shown, default=0)
        axes.set_yscale("symlog", linthresh=1e-3)
        below, above = [mark for mark in _MARKS if mark < low], [mark for mark in _MARKS if mark > high]
        axes.set_ylim(max(below, default=0), min(above, default=2 * high))
        axes.yaxis.set_major_locator(FixedLocator(_MARKS))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    else:
        _from_zero(axes, shown)
    _legend(axes)
    return _svg(figure, y_label)


def areas(x: Sequence[Any], span: Any, series: Mapping[str, Sequence[float]], y_label: str) -> str:
    """Return stacked areas with steps. A value is valid from its x to the next one; the last one for `span`."""
    figure, axes = _axes(x, span, "", y_label)
    edges = [*x, x[-1] + span]
    floor = [0.0] * len(edges)
    for (name, values), color in zip(series.items(), (ORANGE, BLUE), strict=False):
        top = [low + value for low, value in zip(floor, [*values, values[-1]], strict=True)]
        axes.fill_between(edges, floor, top, step="post", label=name, color=color, alpha=0.8, linewidth=0)
        floor = top
    _from_zero(axes, floor)
    _legend(axes)
    return _svg(figure, y_label)


def number(value: float) -> str:
    """Return a number with commas between thousands, or with three digits if it is small."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def duration(seconds: float) -> str:
    """Return a duration in a suitable unit."""
    size, unit = next((size, unit) for least, size, unit in _UNITS if seconds >= least)
    return f"{number(seconds / size)} {unit}"


def _axes(x: Sequence[Any], span: Any, x_label: str, y_label: str) -> tuple[Figure, Any]:
    """Return axes from the first x to the end of the last one. The label of a time axis names its days."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    first, end = x[0], x[-1] + span
    axes.set_xlim(first, end)
    if isinstance(first, datetime):
        # With these limits there is an interval that fits every length.
        locator = AutoDateLocator(minticks=3, maxticks=7)
        locator.intervald |= dict.fromkeys((SECONDLY, MINUTELY), (1, 2, 5, 10, 15, 30))
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(
            ConciseDateFormatter(locator, formats=_MARKED, zero_formats=_BEGUN, show_offset=False)
        )
        days = sorted({f"{day:%Y-%m-%d}" for day in (first, end - timedelta.resolution)})
        x_label = f"{' to '.join(days)}, UTC"
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(axis="y", color=_INK, alpha=0.25)
    return figure, axes


def _steps(x: Sequence[Any], span: Any, values: Sequence[float | None]) -> tuple[list[Any], list[float]]:
    """Return the corners of a line with steps, with a gap where an x is not the end of the last one."""
    across: list[Any] = []
    up: list[float] = []
    for at, value in zip(x, values, strict=True):
        if across and across[-1] != at:
            across.append(at)
            up.append(math.nan)
        across += [at, at + span]
        up += [math.nan if value is None else value] * 2
    return across, up


def _from_zero(axes: Any, values: Sequence[float]) -> None:
    axes.set_ylim(0, max(values, default=0) * _ROOM or 1)
    _mark(axes.yaxis, values)


def _mark(axis: Any, values: Sequence[float]) -> None:
    """Mark an axis with numbers in the format of `number`, with whole ones if the values are whole."""
    axis.set_major_locator(MaxNLocator("auto", steps=_STEPS, integer=all(value == int(value) for value in values)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _legend(axes: Any) -> None:
    axes.legend(frameon=False, fontsize=9, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _svg(figure: Figure, label: str) -> str:
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # fonts here may lack a letter that those of the browser have
        figure.savefig(buffer, format="svg", metadata={"Creator": None, "Date": None, "Title": label})
    svg = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), count=1, flags=re.DOTALL)
    return svg.replace(_INK, "currentColor")
