"""`tablequeue complete`: complete a popped message."""

from __future__ import annotations

import click

from tablequeue.cli.commands import Command, Settings
from tablequeue.cli.lines import load
from tablequeue.cli.options import ID
from tablequeue.model.message import Claim


@click.command(cls=Command)
@click.argument("queue")
@click.argument("id", type=ID)
@click.argument("token")
@click.option("--result", metavar="JSON", help="Its result, in a queue with --results.")
@click.pass_obj
def complete(settings: Settings, queue: str, id: int, token: str, result: str | None) -> None:
    """Complete a popped message.

    Give the ID and TOKEN that `pop` printed. The message moves to the history, if QUEUE keeps one. If the claim has
    been lost, the command is refused and nothing changes.
    """
    with settings.consumer(queue) as source:
        value = None if result is None else load(result.encode("utf-8", "surrogateescape"), "json")
        source.complete(Claim.of(source, id, token), result=value)
    settings.emit({"id": id, "state": "finished"}, "finished")
