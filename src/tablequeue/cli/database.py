"""`tablequeue database`, `upgrade`, `doctor` and `sizes`: commands about the whole database of the queues."""

from __future__ import annotations

import dataclasses

import click

from tablequeue.cli.commands import REFUSED, Command, Group, Settings, say_none
from tablequeue.cli.output import Estimate, one_line, print_json, print_table
from tablequeue.verbs.readable import size


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


@click.command(cls=Command)
@click.argument("queue", required=False)
@click.pass_context
def doctor(ctx: click.Context, queue: str | None) -> None:
    """Check the database for dangers to QUEUE, or to every queue, and print a remedy for each finding.

    It finds transactions that are open for long, dead rows, missing indexes, settings that break a promise, leases that
    are too short, and clocks that differ. It changes nothing. Exit code 1 if something was found.
    """
    settings = ctx.ensure_object(Settings)
    with settings.database() as database:
        findings = database.doctor(queue)
    for finding in findings:
        settings.emit(
            dataclasses.asdict(finding),
            f"{finding.queue or 'database'}: {one_line(finding.cause)}\n  {one_line(finding.remedy)}",
        )
    if not findings and not settings.json:
        click.echo("Nothing was found.")
    ctx.exit(REFUSED if findings else 0)


@click.command(cls=Command)
@click.pass_obj
def sizes(settings: Settings) -> None:
    """Print the rows, the dead rows and the bytes of each table of the library.

    Dead rows were deleted or replaced, and take space until the server cleans them up. Both numbers of rows are
    estimates of the server. SQLite reports only the bytes of its file.
    """
    with settings.database() as database:
        found = database.sizes()
    if settings.json:
        for each in found:
            print_json(dataclasses.asdict(each))
    elif found:
        rows = [(each.table, each.queue, _about(each.rows), _about(each.dead), size(each.bytes)) for each in found]
        print_table(("table", "queue", "rows", "dead rows", "size"), rows)
    else:
        say_none("There is no queue.")


def _about(rows: int | None) -> Estimate | None:
    return None if rows is None else Estimate(rows)
