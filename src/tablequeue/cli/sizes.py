"""`tablequeue sizes`: the tables of the library, with their rows and bytes."""

from __future__ import annotations

import dataclasses

import click

from tablequeue.cli.commands import Command, Settings, say_none
from tablequeue.cli.output import Estimate, print_json, print_table
from tablequeue.verbs.readable import size

COLUMNS = ("table", "queue", "rows", "dead rows", "size")


@click.command(cls=Command)
@click.pass_obj
def sizes(settings: Settings) -> None:
    """Print the rows, the dead rows and the bytes of each table of the library.

    Dead rows were deleted or replaced, and take space until the server cleans them up. Both numbers of rows are
    estimates of the server. SQLite reports only the bytes of its file.
    """
    with settings.database() as database:
        found = database.sizes()
    if settings.json:
        for each in found:
            print_json(dataclasses.asdict(each))
    elif found:
        rows = [(each.table, each.queue, _about(each.rows), _about(each.dead), size(each.bytes)) for each in found]
        print_table(COLUMNS, rows)
    else:
        say_none("There is no queue.")


def _about(rows: int | None) -> Estimate | None:
    return None if rows is None else Estimate(rows)
