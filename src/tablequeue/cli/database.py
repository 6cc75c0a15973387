"""`tablequeue database`: commands for the whole database of the queues."""

from __future__ import annotations

import click

from tablequeue.cli.commands import Group, Settings


@click.group(cls=Group)
def database() -> None:
    """Show and renew the identity of the database."""


@database.command()
@click.option("--renew", is_flag=True, help="Declare this database a copy: give it another identity.")
@click.pass_obj
def identity(settings: Settings, renew: bool) -> None:
    """Print the identity of the database, which Spark's checkpoints, archives and lakes store.

    A database with another identity refuses them. A copy of a database has the same identity: run this with --renew in
    the copy, before anything reads its queues.
    """
    with settings.database() as opened:
        found = opened.renew_identity() if renew else opened.identity()
    settings.emit({"identity": found}, found)
