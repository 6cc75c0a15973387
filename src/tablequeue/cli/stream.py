"""`tablequeue stream`: the streams by which Spark reads a queue."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from tablequeue import stream as streams
from tablequeue.cli.common import Group, Settings, print_json, print_table, report, time_text
from tablequeue.spark.reconcile import reconcile as reconcile_checkpoint


@click.group(cls=Group)
def stream() -> None:
    """Look after the streams by which Spark reads a queue."""


@stream.command("list")
@click.argument("queue")
@click.pass_obj
def list_(settings: Settings, queue: str) -> None:
    """Show the streams of QUEUE, and the messages that each has open.

    An open batch belongs to its stream until that goes on. If it never will, release it.
    """
    with settings.queue(queue) as source:
        states = streams.streams(source)
    if settings.json:
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

    They are ready again, and a run that is still going on is refused. The stream can begin anew, with a new checkpoint.
    """
    with settings.queue(queue) as source:
        report(settings, "released", streams.release(source, stream))


@stream.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.pass_obj
def reconcile(settings: Settings, checkpoint: Path) -> None:
    """Complete what a stopped query has finished, by its CHECKPOINT.

    The last batch of a query that was stopped is completed when it starts again; this does it now.
    """
    with settings.database() as database:
        places = reconcile_checkpoint(checkpoint, database)
    for place in places:
        if settings.json:
            print_json(place._asdict())
        else:
            click.echo(f"{place.queue}: the stream {place.stream} is completed up to batch {place.batch}.")
    if not places:
        click.echo("No batch of a queue was committed yet: there is nothing to complete.", err=True)
