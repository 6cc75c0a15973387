"""One self-contained HTML page of plots and tables: no script, no link to anything outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import resources
from typing import Any, NamedTuple

import jinja2

Row = Mapping[str, Any]


class Plot(NamedTuple):
    """A plot as SVG, its title, and a sentence that says how to read it."""

    title: str
    words: str
    svg: str


class Table(NamedTuple):
    """Rows, their title, and a sentence. A folded table shows its rows when one opens it."""

    title: str
    words: str
    rows: Sequence[Row]
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A heading, what there is to say first, a few numbers, plots and tables."""

    title: str
    words: str
    facts: Row = field(default_factory=dict)
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()


def render(title: str, words: str, facts: Row, sections: Sequence[Section]) -> str:
    """The page as a string; every value is escaped."""
    template = resources.files("tablequeue.spark.reports").joinpath("page.html").read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["cell"] = cell
    environment.filters["numeric"] = numeric
    return environment.from_string(template).render(title=title, words=words, facts=facts, sections=sections)


def numeric(rows: Sequence[Row]) -> set[str]:
    """The columns with numbers in them, which stand on the right."""
    return {name for row in rows for name, value in row.items() if isinstance(value, (int, float))}


def cell(value: Any) -> str:
    """A value as a table shows it: thousands apart, three figures after the point, a dash for nothing."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(value)
