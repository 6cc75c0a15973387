"""`tablequeue lost`: messages delivered at most once that nobody completed."""

from __future__ import annotations

import click

from tablequeue.cli.common import COUNT, Command, Settings, print_messages


@click.command(cls=Command)
@click.argument("queue")
@click.option("-n", "number", type=COUNT, default=100, show_default=True, help="Messages at most.")
@click.option("--older-than", type=float, help="Popped that many seconds ago or longer.  [default: the queue's lease]")
@click.pass_obj
def lost(settings: Settings, queue: str, number: int, older_than: float | None) -> None:
    """Show the messages of QUEUE that were delivered at most once and never completed.

    Those popped a moment ago may yet be done, so they are left out. The first ones by id, with the last error.
    """
    with settings.queue(queue) as source:
        messages = source.lost(number, older_than=older_than)
        kind = source.definition.payload
    print_messages(settings, messages, kind, "id", "popped", "consumer", "last error")
