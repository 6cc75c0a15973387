"""Plots as SVG, for a page in light or dark: what is not coloured takes the colour of the text around it."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import matplotlib as mpl
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

# Colours that stay apart for colour-blind readers, on white and on black.
BLUE, ORANGE, GREEN, RED = "#3b82c4", "#e08a1e", "#3a9d6a", "#c9485b"
_INK = "#888888"  # becomes the text's own
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
_DOTS = 60  # points that are marked
_TICKS = (0, 1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, *(days * 86400 for days in (1, 7, 30, 365)))


# From how many seconds on a unit is used, how many it is, and its name.
_UNITS = (
    (86400, 86400, "d"),
    (3600, 3600, "h"),
    (60, 60, "min"),
    (1, 1, "s"),
    (1e-9, 1e-3, "ms"),
    (-math.inf, 1, "s"),
)


def bars(names: Sequence[str], values: Sequence[float], label: str, color: str = BLUE) -> str:
    """Horizontal bars, the first name on top."""
    rows = max(len(names), 4)  # a lone bar is not to fill the plot
    figure = Figure(figsize=(_SIZE[0], 0.8 + 0.28 * rows), layout="constrained")
    axes = figure.subplots()
    drawn = axes.barh(range(len(names)), values, height=0.7, color=color)
    axes.bar_label(drawn, [number(value) for value in values], padding=3, color=_INK, fontsize=9)
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.set_ylim(rows - 0.5, -0.5)
    axes.margins(x=0.12)
    axes.set_xlabel(label)
    return _svg(figure, label)


def lines(
    x: Sequence[Any],
    series: Mapping[str, Sequence[float | None]],
    y_label: str,
    colors: Sequence[str] = (ORANGE, BLUE, GREEN),
    *,
    x_label: str = "",
    level: float | None = None,
    times: bool = False,
) -> str:
    """One line for each series over the same x, which are numbers or times.

    `level` is where a dashed line is drawn, the target. `times`: what is shown are seconds, few or many.
    """
    figure, axes = _axes(x, x_label, y_label)
    marker = "o" if len(x) <= _DOTS else ""
    for (name, values), color in zip(series.items(), colors, strict=False):
        axes.plot(x, values, label=name, color=color, linewidth=1.8, marker=marker, markersize=3)
    if level is not None:
        axes.axhline(level, color=_INK, linestyle="--", linewidth=1, label="target")
    axes.set_ylim(bottom=0)
    if times:
        lowest = min((value for values in series.values() for value in values if value is not None), default=0)
        axes.set_yscale("symlog", linthresh=1e-3)
        axes.set_ylim(bottom=max(tick for tick in _TICKS if tick <= lowest))
        axes.yaxis.set_major_locator(FixedLocator(_TICKS))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    _legend(axes)
    return _svg(figure, y_label)


def areas(x: Sequence[Any], series: Mapping[str, Sequence[float]], y_label: str) -> str:
    """Filled staircases, one upon the other."""
    figure, axes = _axes(x, "", y_label)
    floor = [0.0] * len(x)
    for (name, values), color in zip(series.items(), (ORANGE, BLUE), strict=False):
        top = [low + value for low, value in zip(floor, values, strict=True)]
        axes.fill_between(x, floor, top, step="post", label=name, color=color, alpha=0.8, linewidth=0)
        floor = top
    axes.set_ylim(0, max(1, *floor) * 1.05)
    _legend(axes)
    return _svg(figure, y_label)


def number(value: float) -> str:
    """Thousands apart, three figures for what is small."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.3g}"


def duration(seconds: float) -> str:
    """Seconds in the unit in which one would say them."""
    size, unit = next((size, unit) for least, size, unit in _UNITS if seconds >= least)
    return f"{number(seconds / size)} {unit}"


def _axes(x: Sequence[Any], x_label: str, y_label: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.grid(axis="y", color=_INK, alpha=0.25)
    if x and isinstance(x[0], datetime):
        locator = AutoDateLocator(maxticks=8)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    return figure, axes


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
        warnings.filterwarnings("ignore", "Glyph")  # the font here lacks a letter; that of the reader's browser has it
        warnings.filterwarnings("ignore", "AutoDateLocator")  # of an axis with one time on it
        figure.savefig(buffer, format="svg", metadata={"Creator": None, "Date": None, "Title": label})
    svg = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), count=1, flags=re.DOTALL)
    return svg.replace(_INK, "currentColor")
