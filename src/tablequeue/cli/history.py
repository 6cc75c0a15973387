"""`tablequeue history`: list and purge what has left a queue."""

from __future__ import annotations

import click

from tablequeue.cli.common import COUNT, Group, Settings, print_messages, report


@click.group(cls=Group)
def history() -> None:
    """List and purge finished messages."""


@history.command("list")
@click.argument("queue")
@click.option("-n", "number", type=COUNT, default=100, show_default=True, help="Messages at most.")
@click.pass_obj
def list_(settings: Settings, queue: str, number: int) -> None:
    """Show the last messages that left QUEUE, highest id first.

    The wait is the time from pushed to first popped, the run the time from popped to finished, in seconds.
    """
    with settings.queue(queue) as source:
        messages = source.history(number)
        kind = source.definition.payload
    print_messages(settings, messages, kind, "id", "finished", "consumer", "wait", "run")


@history.command()
@click.argument("queue")
@click.option("--older-than", type=float, required=True, help="Finished, or lost, that many seconds ago or longer.")
@click.pass_obj
def purge(settings: Settings, queue: str, older_than: float) -> None:
    """Delete what left QUEUE long ago.

    A queue created with --history SECONDS does it by itself, at its claims.
    """
    with settings.queue(queue) as source:
        report(settings, "purged", source.purge_history(older_than))
