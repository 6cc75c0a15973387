"""One self-contained HTML page of plots and tables: no script, no link to anything outside."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any

import jinja2
import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

Row = Mapping[str, Any]

# Colours that stay apart for colour-blind readers, on white and on black.
INK, BLUE, ORANGE, GREEN = "#888888", "#3b82c4", "#e08a1e", "#3a9d6a"
mpl.rcParams.update(
    {
        "svg.fonttype": "none",  # text stays text: searchable, and small
        "font.family": "sans-serif",
        "axes.spines.top": False,
        "axes.spines.right": False,
        **{f"{part}.color": INK for part in ("text", "xtick", "ytick")},
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
    }
)


@dataclass(frozen=True)
class Section:
    """A heading, a sentence that says how to read what follows, plots as SVG, and a table."""

    title: str
    words: str
    plots: Sequence[str] = ()
    table: Sequence[Row] = ()


def render(title: str, words: str, facts: Mapping[str, Any], sections: Sequence[Section]) -> str:
    """The page as a string; every value is escaped."""
    template = resources.files("tablequeue.spark.reports").joinpath("page.html").read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["cell"] = cell
    environment.filters["number"] = lambda value: isinstance(value, (int, float))
    return environment.from_string(template).render(title=title, words=words, facts=facts, sections=sections)


def cell(value: Any) -> str:
    """A value as a table shows it: thousands apart, three figures after the point, a dash for nothing."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value:%H:%M:%S}.{value.microsecond // 1000:03}"
    return str(value)


def bars(names: Sequence[str], values: Sequence[float], label: str, color: str = BLUE) -> str:
    """Horizontal bars, the first name on top."""
    figure = Figure(figsize=(7, 0.8 + 0.28 * len(names)), layout="constrained")
    axes = figure.subplots()
    drawn = axes.barh(range(len(names)), values, color=color)
    axes.bar_label(drawn, [cell(value) for value in values], padding=3, color=INK, fontsize=9)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(label)
    return _svg(figure, label)


def lines(x: Sequence[float], series: Mapping[str, Sequence[float]], x_label: str, y_label: str) -> str:
    """One line for each series over the same x."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    for (name, values), color in zip(series.items(), (ORANGE, BLUE, GREEN), strict=False):
        axes.plot(x, values, label=name, color=color, linewidth=2, marker="o", markersize=3)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y", color=INK, alpha=0.25)
    axes.legend(frameon=False)
    return _svg(figure, y_label)


def _svg(figure: Figure, label: str) -> str:
    figure.patch.set_alpha(0)
    for axes in figure.axes:
        axes.patch.set_alpha(0)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Title": label})
    svg = buffer.getvalue()
    return re.sub(r"^.*?(?=<svg)", "", svg, count=1, flags=re.DOTALL)
