"""`tablequeue cancel`: cancel messages, and tell consumers of messages in progress to stop."""

from __future__ import annotations

import click

from tablequeue.cli.commands import Command, Settings
from tablequeue.cli.options import ID
from tablequeue.errors import BadInput


@click.command(cls=Command)
@click.argument("queue")
@click.argument("ids", type=ID, nargs=-1, required=True, metavar="ID...")
@click.pass_obj
def cancel(settings: Settings, /, queue: str, ids: tuple[int, ...]) -> None:
    """Cancel the messages of QUEUE with these ids.

    A message that waits, or is a dead letter, leaves the queue. The consumer of a message in progress is told to stop.
    If some ids do not exist, the exit code is 1, and the other messages are still cancelled.
    """
    with settings.consumer(queue) as source:
        account = source.cancel(ids)
    settings.emit(
        {"cancelled": account.cancelled, "told": account.told, "unknown": account.unknown},
        f"{len(account.cancelled)} cancelled, {len(account.told)} told to stop",
    )
    if account.unknown:
        named = ", ".join(map(str, account.unknown))
        raise BadInput(f"There is no message {named} in {queue!r}.", "It may be finished: see `history`.")
