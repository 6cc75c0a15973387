"""`tablequeue stats`: how many messages are where."""

from __future__ import annotations

import dataclasses

import click

from tablequeue.cli.common import Command, Settings, print_json, print_table
from tablequeue.errors import TablequeueError
from tablequeue.operations.inspect import Stats


@click.command(cls=Command)
@click.argument("queue", required=False)
@click.pass_obj
def stats(settings: Settings, queue: str | None) -> None:
    """Count messages by state, of QUEUE or of every queue.

    The oldest age is the time since the first ready message was pushed, in seconds.
    """
    found: list[Stats] = []
    refused: list[TablequeueError] = []
    with settings.database() as database:
        for name in [queue] if queue else database.queues():
            try:
                found.append(database.queue(name).stats())
            except TablequeueError as error:
                refused.append(error)  # one bad queue does not hide the others
    if settings.json:
        for each in found:
            print_json(dataclasses.asdict(each))
    elif found:
        rows = [
            (
                each.queue,
                each.ready,
                each.scheduled,
                each.in_progress,
                each.dead,
                None if each.oldest_age is None else round(each.oldest_age, 1),
                each.finished,
            )
            for each in found
        ]
        print_table(("queue", "ready", "scheduled", "in progress", "dead", "oldest age", "finished"), rows)
    if refused:
        raise refused[0]
