"""`tablequeue history` and `lost`: finished messages, and messages delivered at most once and never completed."""

from __future__ import annotations

import click

from tablequeue.cli.commands import Command, Group, Settings, confirm, report, yes
from tablequeue.cli.messages import print_messages
from tablequeue.cli.options import COUNT, Age
from tablequeue.verbs.readable import duration


@click.group(cls=Group)
def history() -> None:
    """List and purge finished messages."""


@history.command("list")
@click.argument("queue")
@click.option("-n", "number", type=COUNT, default=100, show_default=True, help="Maximum number of messages.")
@click.pass_obj
def list_(settings: Settings, queue: str, number: int) -> None:
    """Show the finished messages of QUEUE, highest id first.

    The wait is the time from push to first pop, the run is the time from pop to finish, in seconds.
    """
    with settings.consumer(queue) as source:
        messages = source.history(number)
        kind = source.definition.payload
    none = f"No message is in the history of {queue!r}."
    print_messages(settings, messages, kind, none, "id", "finished", "consumer", "wait", "run")


@history.command()
@click.argument("queue")
@click.option(
    "--older-than",
    type=Age(),
    required=True,
    help="Only messages that ended this long ago or earlier: 30d, 12h, or seconds.",
)
@yes
@click.pass_obj
def purge(settings: Settings, queue: str, older_than: float, yes: bool) -> None:
    """Delete old messages from the history of QUEUE.

    A queue that was created with --history SECONDS does this by itself, at its claims.
    """
    with settings.consumer(queue) as source:
        confirm(
            yes, f"Delete every message of the history of {queue!r} that ended {duration(older_than)} ago or before?"
        )
        report(settings, "purged", source.purge_history(older_than))


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
