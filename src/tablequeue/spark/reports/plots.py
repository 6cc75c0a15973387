"""Plots as SVG, for a page in light or dark: what is not coloured takes the colour of the text around it."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import matplotlib as mpl
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

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
_LONGEST = 32


def bars(names: Sequence[str], values: Sequence[float], label: str, color: str = BLUE) -> str:
    """Horizontal bars, the first name on top."""
    figure = Figure(figsize=(_SIZE[0], 0.8 + 0.28 * len(names)), layout="constrained")
    axes = figure.subplots()
    drawn = axes.barh(range(len(names)), values, color=color)
    axes.bar_label(drawn, [number(value) for value in values], padding=3, color=_INK, fontsize=9)
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.invert_yaxis()
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
    level: tuple[float, str] | None = None,
    log: bool = False,
) -> str:
    """One line for each series over the same x, which are numbers or times; `level` is a dashed line with its name."""
    figure, axes = _axes(x, x_label, y_label)
    for (name, values), color in zip(series.items(), colors, strict=False):
        axes.plot(x, values, label=name, color=color, linewidth=1.8, marker="o", markersize=2.5)
    if level:
        axes.axhline(level[0], color=_INK, linestyle="--", linewidth=1, label=level[1])
    if log:
        axes.set_yscale("symlog", linthresh=1e-3)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9, ncols=4)
    return _svg(figure, y_label)


def areas(x: Sequence[Any], series: Mapping[str, Sequence[float]], y_label: str, colors: Sequence[str]) -> str:
    """A filled staircase for each series, a later one before an earlier one."""
    figure, axes = _axes(x, "", y_label)
    for (name, values), color in zip(series.items(), colors, strict=True):
        axes.fill_between(x, values, step="post", label=name, color=color, alpha=0.55, linewidth=0)
        axes.step(x, values, where="post", color=color, linewidth=1.4)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9, ncols=4)
    return _svg(figure, y_label)


def number(value: float) -> str:
    """Thousands apart, three figures for what is small."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.3g}"


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


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _svg(figure: Figure, label: str) -> str:
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the font here lacks a letter; that of the reader's browser has it
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Title": label})
    svg = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), count=1, flags=re.DOTALL)
    return svg.replace(_INK, "currentColor")
