"""The output of commands: JSON, lines, fields and tables."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tablequeue.model.payload import on_any_stack
from tablequeue.verbs.stats import Stats

# The least width of a column that is cut.
LEAST = 12


def print_json(value: Mapping[str, Any], *, err: bool = False) -> None:
    # ASCII: a payload must not steer the terminal, and a pipe may have any encoding.
    click.echo(on_any_stack(lambda value: json.dumps(value, default=_plain), value), err=err)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(type(value))


def one_line(text: str) -> str:
    """Return the text on one line, with control characters escaped: a payload must not steer the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values in full, one a line, escaped as in `one_line`."""
    width = max(map(len, fields))
    for name, value in fields.items():
        click.echo(f"{name:{width}}  {one_line(str(value))}".rstrip())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, cut: str | None = None) -> None:
    """Print a table as wide as the terminal; see `table_of`."""
    width = shutil.get_terminal_size((80, 24)).columns
    # Printed by click, for rich's own console would exit with code 1 when the pipe is broken.
    printed = io.StringIO()
    Console(file=printed, width=width, color_system=None).print(table_of(columns, rows, width, cut))
    click.echo("\n".join(line.rstrip() for line in printed.getvalue().splitlines() if line.strip()))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]], width: int, cut: str | None = None) -> Table:
    """Return a table `width` characters wide, with numbers to the right. The column `cut` is shortened to fit."""
    rows = list(rows)
    # Text, not str: rich would read [brackets] in a str as markup.
    cells = [[Text("" if cell is None else one_line(str(cell))) for cell in row] for row in rows]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for place, column in enumerate(columns):
        number = all(isinstance(row[place], (int, float, Estimate, type(None))) for row in rows)
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    if cut:
        # Cut here, because rich would fold the other columns first. Two characters are between columns.
        place = columns.index(cut)
        widths = [
            max([len(column), *(cell.cell_len for cell in column_cells)])
            for column, *column_cells in zip(columns, *cells, strict=True)
        ]
        room = max(width - 2 * len(columns) - sum(widths) + widths[place], LEAST)
        for row in cells:
            row[place].truncate(room, overflow="ellipsis")
    for row in cells:
        table.add_row(*row)
    return table


# -- statistics --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A number that is not exact: printed with a ~."""

    value: object

    def __str__(self) -> str:
        return f"~{self.value}"


def finished_cell(stats: Stats) -> object:
    """Return the number of finished messages, for a table."""
    return Estimate(stats.finished) if "finished" in stats.estimated else stats.finished


def stats_record(stats: Stats) -> dict[str, Any]:
    """Return the statistics of a queue as a JSON object; `estimated` names the numbers that are not exact."""
    return {**dataclasses.asdict(stats), "estimated": stats.estimated}
