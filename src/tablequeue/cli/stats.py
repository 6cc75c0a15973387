"""`tablequeue stats`: how many messages are where."""

from __future__ import annotations

import dataclasses

import click

from tablequeue.cli.common import Command, Settings, print_json, print_table
from tablequeue.errors import TablequeueError
from tablequeue.operations.inspect import Stats

COLUMNS = "queue ready scheduled blocked in_progress dead oldest_age finished".split()


@click.command(cls=Command)
@click.argument("queue", required=False)
@click.pass_obj
def stats(settings: Settings, queue: str | None) -> None:
    """Count messages by state, of QUEUE or of every queue.

    The oldest age is the time since the first ready message was pushed, in seconds.
    """
    found: list[Stats] = []
    refused: list[TablequeueError] = []
    grouped = False
    with settings.database() as database:
        for name in [queue] if queue else database.queues():
            try:
                source = database.queue(name)
                found.append(source.stats())
                grouped = grouped or source.definition.grouped
            except TablequeueError as error:
                refused.append(error)  # one bad queue does not hide the others
    if settings.json:
        for each in found:
            print_json(dataclasses.asdict(each))
    elif found:
        columns = [column for column in COLUMNS if column != "blocked" or grouped]
        rows = [[_cell(getattr(each, column)) for column in columns] for each in found]
        print_table([column.replace("_", " ") for column in columns], rows)
    if refused:
        raise refused[0]


def _cell(value: object) -> object:
    return round(value, 1) if isinstance(value, float) else value
