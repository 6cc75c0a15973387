"""`tablequeue batch`: the progress of a batch, and its end before its time."""

from __future__ import annotations

import dataclasses

import click

from tablequeue.cli.commands import Group, Settings
from tablequeue.cli.messages import time_text
from tablequeue.cli.options import ID
from tablequeue.cli.output import print_fields, print_json

TIMES = ("opened_at", "failed_at", "ended_at")


@click.group(cls=Group)
def batch() -> None:
    """Look at batches: messages with a callback when all of them are finished."""


@batch.command()
@click.argument("id", type=ID)
@click.pass_obj
def show(settings: Settings, id: int) -> None:
    """Show how many messages of the batch ID wait, are in progress, finished, dead and cancelled."""
    with settings.database() as database:
        found = database.batch(id)
        progress = found.progress()
    values = {"batch": id, "queue": found.queue, "total": progress.total, **dataclasses.asdict(progress)}
    if settings.json:
        print_json(values)
    else:
        print_fields({name: time_text(value) if name in TIMES else value for name, value in values.items()})


@batch.command()
@click.argument("id", type=ID)
@click.pass_obj
def cancel(settings: Settings, id: int) -> None:
    """Cancel the messages of the batch ID, with its dead letters. Consumers of those in progress are told to stop.

    The batch ends with the last message, and pushes its callback, which says how many were cancelled. After an
    interruption, run the command again.
    """
    with settings.database() as database:
        cancelled = database.batch(id).cancel()
    if settings.json:
        print_json({"batch": id, "cancelled": cancelled})
    else:
        click.echo(f"{cancelled} cancelled or told to stop")
