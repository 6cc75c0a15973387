"""`tablequeue archive`: move old finished messages to Parquet files."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from tablequeue.cli.commands import Command, Settings, needed_packages, report
from tablequeue.cli.options import Age


@click.command(cls=Command)
@click.argument("queue")
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The folder of the files, for this queue alone. It is made if it is not there.",
)
@click.option(
    "--older-than",
    "--older",
    type=Age(),
    required=True,
    help="Only those that ended so long ago: 30d, 12h, or seconds.",
)
@click.pass_obj
def archive(settings: Settings, queue: str, folder: Path, older_than: float) -> None:
    """Move old messages from the history of QUEUE to Parquet files: finished, cancelled and expired ones.

    A message is deleted from the history when its file is on the disk, and was read back and compared. After an
    interruption, run the command again: then each message is in the files once, or still in the history.

    It needs: pip install 'tablequeue[archive]'
    """
    with needed_packages("An archive", "archive"):
        from tablequeue.bulk.archive import archive as move
    console = Console(stderr=True)
    with (
        settings.consumer(queue) as source,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("Archiving", total=1.0)
        archived = move(source, folder, older_than, watch=lambda share: progress.update(task, completed=share))
    report(settings, "archived", archived)
