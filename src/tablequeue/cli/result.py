"""`tablequeue result`: the result of a finished message."""

from __future__ import annotations

import click

from tablequeue.cli.commands import EMPTY, Command, Settings
from tablequeue.cli.options import ID, Seconds
from tablequeue.errors import NoResult
from tablequeue.model.payload import json_text


@click.command(cls=Command)
@click.argument("queue")
@click.argument("id", type=ID)
@click.option("--wait", type=Seconds(), default=0, show_default=True, help="Seconds to wait for the message to finish.")
@click.pass_context
def result(ctx: click.Context, queue: str, id: int, wait: float) -> None:
    """Print the result of the message ID of QUEUE, as JSON.

    null if the message was completed without one. Exit code 3 if there is no result: the message is not finished, is a
    dead letter, has expired, or does not exist.
    """
    settings = ctx.ensure_object(Settings)
    with settings.queue(queue) as source:
        try:
            value = source.result(id, wait=wait)
        except NoResult as error:
            click.echo(error.cause, err=True)
            ctx.exit(EMPTY)
    settings.emit({"id": id, "result": value}, json_text(value))
