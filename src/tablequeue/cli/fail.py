"""`tablequeue fail`: fail a popped message."""

from __future__ import annotations

import click

from tablequeue.cli.commands import Command, Settings
from tablequeue.cli.options import ID
from tablequeue.model.message import Claim


@click.command(cls=Command)
@click.argument("queue")
@click.argument("id", type=ID)
@click.argument("token")
@click.option("--error", default="", help="The reason, which is kept with the message.")
@click.option("--retry-in", type=float, help="Seconds until it is ready again.  [default: the queue's backoff]")
@click.pass_obj
def fail(settings: Settings, queue: str, id: int, token: str, error: str, retry_in: float | None) -> None:
    """Fail a popped message and print its new state.

    Give the ID and TOKEN that `pop` printed. The message is tried again after the queue's backoff; after its last
    attempt it is a dead letter; where delivery is at most once, it stays lost. If the claim has been lost, the command
    is refused and nothing changes.
    """
    with settings.consumer(queue) as source:
        # The backoff depends on the attempts. If the message is gone, `fail` reports it.
        message = source.find(id)
        attempts = message.attempts if message else 0
        state = source.fail(Claim.of(source, id, token, attempts), error, retry_in=retry_in)
    settings.emit({"id": id, "state": state}, state)
