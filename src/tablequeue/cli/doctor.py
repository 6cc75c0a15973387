"""`tablequeue doctor`: what endangers the queues on their database."""

from __future__ import annotations

import dataclasses

import click

from tablequeue.cli.common import REFUSED, Command, Settings, print_json, shown


@click.command(cls=Command)
@click.argument("queue", required=False)
@click.pass_context
def doctor(ctx: click.Context, queue: str | None) -> None:
    """Look for what endangers QUEUE, or every queue, on this database; and say what to do about it.

    Long-open transactions, dead rows, missing indexes, settings that break a promise, leases too short for the work,
    clocks that differ. Nothing is changed. Exit code 1 if something was found.
    """
    settings = ctx.ensure_object(Settings)
    with settings.database() as database:
        findings = database.doctor(queue)
    for finding in findings:
        if settings.json:
            print_json(dataclasses.asdict(finding))
        else:
            click.echo(f"{finding.queue or 'database'}: {shown(finding.cause)}\n  {shown(finding.remedy)}")
    if not findings and not settings.json:
        click.echo("Nothing was found.")
    ctx.exit(REFUSED if findings else 0)
