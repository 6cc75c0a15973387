"""`tablequeue archive`: move old finished messages to Parquet files, or to a table of Delta or Iceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import Progress

from tablequeue.cli.commands import Command, Settings, needed_packages, report
from tablequeue.cli.options import Age

if TYPE_CHECKING:
    from tablequeue.bulk.archive import Format

FORMATS = ("parquet", "delta", "iceberg")


@click.command(cls=Command)
@click.argument("queue")
@click.option(
    "--to",
    type=click.Path(file_okay=False),
    required=True,
    help="The folder, for this queue only, which is made if it is missing. With iceberg: NAMESPACE.TABLE.",
)
@click.option("--format", type=click.Choice(FORMATS), default=FORMATS[0], show_default=True, help="What it has.")
@click.option(
    "--warehouse",
    type=click.Path(file_okay=False),
    help="With iceberg: the folder in which the table is made, if it is missing.",
)
@click.option(
    "--older-than",
    "--older",
    type=Age(),
    required=True,
    help="Only messages that ended this long ago or earlier: 30d, 12h, or seconds.",
)
@click.pass_obj
def archive(settings: Settings, queue: str, to: str, format: Format, warehouse: str | None, older_than: float) -> None:
    """Move old messages from the history of QUEUE to a lake: finished, cancelled and expired ones.

    The lake is a folder with Parquet files, a Delta table, or an Iceberg table in the database of the queue. A message
    is deleted from the history when its file is on the disk, and was read back and compared. After an interruption,
    run the command again: then each message is in the lake once, or still in the history.

    It needs: pip install 'tablequeue[archive]', for a table also the extra delta or iceberg.
    """
    with needed_packages("An archive", "archive"):
        from tablequeue.bulk.archive import archive as move
    console = Console(stderr=True)
    with (
        settings.consumer(queue) as source,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("Archiving", total=1.0)
        archived = move(
            source,
            to,
            older_than,
            format=format,
            warehouse=warehouse,
            watch=lambda share: progress.update(task, completed=share),
        )
    report(settings, "archived", archived)
