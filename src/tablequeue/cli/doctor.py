"""`tablequeue doctor`: check the database for dangers to the queues."""

from __future__ import annotations

import dataclasses

import click

from tablequeue.cli.commands import REFUSED, Command, Settings
from tablequeue.cli.output import one_line


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
