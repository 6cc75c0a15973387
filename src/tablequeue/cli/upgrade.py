"""`tablequeue upgrade`: upgrade the queues of an older tablequeue to the current schema version."""

from __future__ import annotations

import click

from tablequeue.cli.commands import Command, Settings
from tablequeue.cli.output import print_json


@click.command(cls=Command)
@click.pass_obj
def upgrade(settings: Settings) -> None:
    """Upgrade all queues to the schema version of this tablequeue.

    Prints each queue with its old and its new version. Queues that already have the new version are left alone. Each
    queue is upgraded completely or not at all, and keeps its messages. Stop the producers and consumers first: an older
    tablequeue cannot use an upgraded queue.
    """
    with settings.database() as database:
        before, now = database.upgrade(), database.schema_version
    for queue, version in before.items():
        if settings.json:
            print_json({"queue": queue, "before": version, "now": now})
        else:
            done = "already" if version == now else f"from {version}"
            click.echo(f"{queue}: schema version {now}, {done}")
