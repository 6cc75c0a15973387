"""`tablequeue stream`: the streams with which Spark reads a queue."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from tablequeue.bulk import stream as streams
from tablequeue.cli.commands import Group, Settings, report, say_none
from tablequeue.cli.messages import time_text
from tablequeue.cli.output import print_json, print_table
from tablequeue.spark.reconcile import reconcile as reconcile_checkpoint


@click.group(cls=Group)
def stream() -> None:
    """List and repair the streams with which Spark reads a queue."""


@stream.command("list")
@click.argument("queue")
@click.pass_obj
def list_(settings: Settings, queue: str) -> None:
    """Show the streams of QUEUE, and how many messages each has open.

    The messages of an open batch belong to the stream until its query continues. If the query never will, release them.
    """
    with settings.consumer(queue) as source:
        states = streams.streams(source)
    if not states:
        say_none(f"{queue!r} has no stream.")
    elif settings.json:
        for state in states:
            print_json(dataclasses.asdict(state))
    else:
        rows = [(state.stream, state.open, time_text(state.claimed_at), state.completed) for state in states]
        print_table(("stream", "open messages", "since", "completed batches"), rows)


@stream.command()
@click.argument("queue")
@click.argument("stream")
@click.pass_obj
def release(settings: Settings, queue: str, stream: str) -> None:
    """Give back the messages of an abandoned STREAM of QUEUE.

    They are ready again, and a query that still runs is refused. The stream can start again with a new checkpoint.
    """
    with settings.consumer(queue) as source:
        report(settings, "released", streams.release(source, stream))


@stream.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.pass_obj
def reconcile(settings: Settings, checkpoint: Path) -> None:
    """Complete the messages that a stopped query has finished, according to its CHECKPOINT.

    The last batch of a stopped query is completed when the query starts again. This command completes it now.
    """
    with settings.database() as database:
        completed = reconcile_checkpoint(checkpoint, database)
    for last in completed:
        settings.emit(last._asdict(), f"{last.queue}: the stream {last.stream} is completed up to batch {last.batch}.")
    if not completed:
        click.echo("No batch of a queue was committed yet: there is nothing to complete.", err=True)
