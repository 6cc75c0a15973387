"""`tablequeue lost`: messages delivered at most once that were never completed."""

from __future__ import annotations

import click

from tablequeue.cli.commands import Command, Settings
from tablequeue.cli.messages import print_messages
from tablequeue.cli.options import COUNT


@click.command(cls=Command)
@click.argument("queue")
@click.option("-n", "number", type=COUNT, default=100, show_default=True, help="Maximum number of messages.")
@click.option(
    "--older-than", type=float, help="Only messages popped at least this many seconds ago.  [default: the lease]"
)
@click.pass_obj
def lost(settings: Settings, queue: str, number: int, older_than: float | None) -> None:
    """Show the messages of QUEUE that were delivered at most once and never completed.

    Messages that were just popped are left out: they may still be completed. The lowest ids come first.
    """
    with settings.queue(queue) as source:
        messages = source.lost(number, older_than=older_than)
        kind = source.definition.payload
    print_messages(
        settings, messages, kind, f"No message of {queue!r} is lost.", "id", "popped", "consumer", "last error"
    )
