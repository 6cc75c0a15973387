"""`tablequeue move`: move messages to another queue."""

from __future__ import annotations

import click

from tablequeue.cli.commands import Command, Settings
from tablequeue.cli.options import ID
from tablequeue.cli.output import print_json
from tablequeue.operations.move import MOVED
from tablequeue.states import LiveState


@click.command(cls=Command)
@click.argument("queue")
@click.argument("to", metavar="QUEUE")
@click.argument("ids", type=ID, nargs=-1, metavar="[ID]...")
@click.option("--state", type=click.Choice(MOVED), help="Only messages in this state.")
@click.pass_obj
def move(settings: Settings, /, queue: str, to: str, ids: tuple[int, ...], state: LiveState | None) -> None:
    """Move messages that no consumer holds from one queue to another of the same database.

    Those with these ids, all or none; or all that wait and all dead letters, a thousand in each transaction. With
    --json, the old and the new id of each is printed.
    """
    if ids and state is not None:
        raise click.UsageError("--state does not go with ids.")
    with settings.database() as database:
        moved = database.queue(queue).move(ids or None, to=database.queue(to), state=state)
    if settings.json:
        for id, new in moved.items():
            print_json({"id": id, "moved_to": new})
    else:
        click.echo(f"{len(moved)} moved")
