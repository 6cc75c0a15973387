"""`tablequeue reschedule`: another due time or priority for a message that waits."""

from __future__ import annotations

from datetime import datetime

import click

from tablequeue.cli.commands import Command, Settings
from tablequeue.cli.options import ID, time_option


@click.command(cls=Command)
@click.argument("queue")
@click.argument("id", type=ID)
@click.option("--delay", type=float, help="Seconds until it is ready; 0: at once.")
@click.option(
    "--due", callback=time_option, metavar="TIME", help="When it is ready, such as 2030-01-31T12:00:00+00:00."
)
@click.option("--priority", type=int, help="Its priority, in a queue with --order priority.")
@click.pass_obj
def reschedule(
    settings: Settings, /, queue: str, id: int, delay: float | None, due: datetime | None, priority: int | None
) -> None:
    """Change when message ID of QUEUE becomes ready, or its priority. It must wait: ready, scheduled or blocked."""
    with settings.consumer(queue) as source:
        source.reschedule(id, delay=delay, due=due, priority=priority)
    settings.emit({"rescheduled": id}, "rescheduled")
