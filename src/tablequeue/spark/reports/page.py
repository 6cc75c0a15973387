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
    """A plot as SVG, its title, and a sentence of explanation."""

    title: str
    words: str
    svg: str


class Table(NamedTuple):
    """Rows, their title, and a sentence of explanation. A folded table is closed at first.

    The first column of a linked table has the titles of the sections after its own, in their order.
    """

    title: str
    words: str
    rows: Sequence[Row]
    folded: bool = False
    linked: bool = False


@dataclass(frozen=True)
class Section:
    """A heading, sentences with what to know first, a few numbers, plots and tables."""

    title: str
    findings: Sequence[str] = ()
    facts: Row = field(default_factory=dict)
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()


def render(title: str, words: str, facts: Row, sections: Sequence[Section]) -> str:
    """Return the page as HTML, with every value escaped."""
    template = resources.files("tablequeue.spark.reports").joinpath("page.html").read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["cell"] = cell
    environment.filters["numeric"] = numeric
    return environment.from_string(template).render(title=title, words=words, facts=facts, sections=sections)


def numeric(rows: Sequence[Row]) -> set[str]:
    """Return the columns with numbers, which are aligned to the right."""
    return {name for row in rows for name, value in row.items() if isinstance(value, (int, float))}


def cell(value: Any) -> str:
    """Format a value for a table: with commas between thousands, three decimals, and a dash for None."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return str(value)
