"""`tablequeue report`: what happened to the messages of the queues, as tables and as a page."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tablequeue.cli.commands import Command, Settings, needed_packages
from tablequeue.cli.options import Seconds, time_option
from tablequeue.cli.output import print_json, print_table


@click.command(cls=Command)
@click.argument("queues", nargs=-1)
@click.option(
    "--lake",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The folder that keeps the messages that were read, and gets the tables and the page.",
)
@click.option(
    "--since", callback=time_option, metavar="TIME", help="Only messages that were live at that time or later."
)
@click.option("--until", callback=time_option, metavar="TIME", help="Only messages that were pushed before that time.")
@click.option(
    "--target-wait",
    type=Seconds(),
    default=10.0,
    show_default=True,
    help="Seconds within which 95 % of the messages should be popped, to compute the consumers needed.",
)
@click.option("--master", help="Where Spark runs, if it is needed: a cluster, or sc://HOST:PORT.  [default: here]")
@click.pass_obj
def report(
    settings: Settings,
    /,
    queues: tuple[str, ...],
    folder: Path,
    since: datetime | None,
    until: datetime | None,
    target_wait: float,
    master: str | None,
) -> None:
    """Report on QUEUES, or on all queues and subscriptions that keep a history: a page with plots, and Parquet tables.

    It has wait and run times, throughput, backlog, retries and dead letters by error, every producer and consumer, lost
    messages, and how many consumers would have been enough.

    The lake keeps the messages that were read. The next report reads only messages finished since, and still has the
    messages that a retention has deleted meanwhile. Archives in its folders are read too. After an interruption, run
    the report again. Write times as 2030-01-31T12:00:00+00:00.

    It needs: pip install 'tablequeue[report]'. With more than 500,000 messages it runs Spark on this machine, or at
    --master, and needs Java 17 or newer, and: pip install 'tablequeue[spark,report]'
    """
    if since and until and since >= until:
        raise click.UsageError("--since is not before --until.")
    with settings.database() as database, _progress() as step:
        step("Loading")
        with needed_packages("A report", "report"):
            from tablequeue.spark.reports import job
            from tablequeue.spark.reports.lake import Window
        window = Window(since, until)
        found = job.report(
            database, queues, folder, window, target_wait, schema=settings.schema, master=master, step=step
        )
    _print(settings, found, folder)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """In a terminal, show a line with the current step and the time that has passed."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    # A copy of standard error, which is redirected while Spark starts.
    with os.fdopen(os.dup(2), "w") as stderr:
        console = Console(file=stderr)
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("")
            yield lambda words: progress.update(task, description=words)


def _print(settings: Settings, found: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path) -> None:
    page = folder / "report.html"
    if settings.json:
        for row in found["overview"]:
            mine = {
                name: [_without_queue(r) for r in rows if r["queue"] == row["queue"]] for name, rows in found.items()
            }
            print_json({**row, **{name: mine[name] for name in ("times", "errors", "workers", "consumers")}})
        print_json({"report": str(page), "tables": str(folder / "tables")})
        return
    times = {(row["queue"], row["time"]): row["p95"] for row in found["times"]}
    columns = "queue finished retried backlog in_progress dead lost".split()
    print_table(
        [*(name.replace("_", " ") for name in columns), "wait p95", "run p95"],
        [
            [*(row[name] for name in columns), *(_rounded(times.get((row["queue"], time))) for time in ("wait", "run"))]
            for row in found["overview"]
        ],
        cut="queue",
    )
    click.echo(f"The report is in {page}, its tables are in {folder / 'tables'}.")


def _without_queue(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "queue"}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
