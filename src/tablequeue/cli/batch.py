"""`tablequeue batch`: the open batches of a queue, the progress and the results of a batch, and its cancellation."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from tablequeue.cli.commands import Group, Settings, confirm, say_none, yes
from tablequeue.cli.messages import time_text
from tablequeue.cli.options import COUNT, ID
from tablequeue.cli.output import print_fields, print_json, print_table
from tablequeue.ext import context_of
from tablequeue.model.batch import BatchProgress
from tablequeue.model.payload import json_text
from tablequeue.verbs.batches import Batch, progress_of_open

TIMES = ("opened_at", "failed_at", "ended_at")
COLUMNS = ("batch", "total", "waiting", "in_progress", "finished", "dead", "cancelled", "opened_at")


@click.group(cls=Group)
def batch() -> None:
    """Look at batches: messages with a callback when all of them are finished."""


@batch.command(name="list")
@click.argument("queue")
@click.option("-n", "number", type=COUNT, default=100, show_default=True, help="Maximum number of batches.")
@click.option("--after", type=ID, default=0, help="Only batches with higher ids.")
@click.pass_obj
def list_(settings: Settings, queue: str, number: int, after: int) -> None:
    """List the open batches of QUEUE by their ids, with the numbers of their messages."""
    with settings.database() as database:
        found = progress_of_open(context_of(database.queue(queue)), number, after)
    rows = [_values(batch, progress) for batch, progress in found.items()]
    if not rows:
        say_none(f"{queue!r} has no open batch.")
    elif settings.json:
        for values in rows:
            print_json(values)
    else:
        print_table(
            COLUMNS,
            ([time_text(values[name]) if name in TIMES else values[name] for name in COLUMNS] for values in rows),
        )


@batch.command()
@click.argument("id", type=ID)
@click.pass_obj
def show(settings: Settings, id: int) -> None:
    """Show how many messages of the batch ID wait, are in progress, finished, dead and cancelled."""
    with settings.database() as database:
        batch = database.batch(id)
        values = _values(batch, batch.progress())
    if settings.json:
        print_json(values)
    else:
        print_fields({name: time_text(value) if name in TIMES else value for name, value in values.items()})


@batch.command()
@click.argument("id", type=ID)
@click.option("-n", "number", type=COUNT, default=100, show_default=True, help="Maximum number of results.")
@click.option("--after", type=ID, default=0, help="Only results of messages with higher ids.")
@click.pass_obj
def results(settings: Settings, id: int, number: int, after: int) -> None:
    """List the results of the finished messages of the batch ID, by the ids of the messages."""
    with settings.database() as database:
        found = database.batch(id).results(number, after=after)
    if not found:
        say_none(f"The batch {id} has no result.")
    elif settings.json:
        for message, result in found.items():
            print_json({"id": message, "result": result})
    else:
        print_table(("id", "result"), ((message, json_text(result)) for message, result in found.items()))


@batch.command()
@click.argument("id", type=ID)
@yes
@click.pass_obj
def cancel(settings: Settings, id: int, yes: bool) -> None:
    """Cancel the messages of the batch ID, with its dead letters. Consumers of messages in progress are told to stop.

    The batch ends with the last message, and pushes its callback with the number of cancelled messages. After an
    interruption, run the command again.
    """
    with settings.database() as database:
        batch = database.batch(id)
        confirm(yes, f"Cancel every message of the batch {id} of the queue {batch.queue!r}?")
        cancelled = batch.cancel()
    settings.emit({"batch": id, "cancelled": cancelled}, f"{cancelled} cancelled or told to stop")


def _values(batch: Batch, progress: BatchProgress) -> dict[str, Any]:
    return {"batch": batch.id, "queue": batch.queue, "total": progress.total, **dataclasses.asdict(progress)}
