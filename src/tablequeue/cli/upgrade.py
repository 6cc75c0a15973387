"""`tablequeue upgrade`: bring queues that an older tablequeue made to the present schema version."""

from __future__ import annotations

import click

from tablequeue.cli.common import Command, Settings, print_json


@click.command(cls=Command)
@click.pass_obj
def upgrade(settings: Settings) -> None:
    """Upgrade all queues to the schema version of this tablequeue.

    Prints each queue with the version it had and the one it has now. Those that have it already are left alone. Each
    queue is upgraded whole or not at all, and its messages stay. Stop its producers and consumers before: an older
    tablequeue cannot read it afterwards.
    """
    with settings.database() as database:
        before, now = database.upgrade(), database.schema_version
    for queue, version in before.items():
        if settings.json:
            print_json({"queue": queue, "before": version, "now": now})
        else:
            done = "already" if version == now else f"from {version}"
            click.echo(f"{queue}: schema version {now}, {done}")
