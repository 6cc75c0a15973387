"""`tablequeue pipeline`: run the stages of a pipeline on Spark."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.live import Live

from tablequeue.cli import logs
from tablequeue.cli.commands import Group, Settings, needed_packages
from tablequeue.cli.health import health_options, serving_health
from tablequeue.cli.options import Position, Seconds
from tablequeue.cli.output import one_line, print_json, print_table, table_of
from tablequeue.errors import BadInput, TablequeueError
from tablequeue.worker.signals import stop_on_signals

if TYPE_CHECKING:
    from tablequeue.spark.pipeline import Pipeline, Progress

# Seconds between two reports of progress, if there is no terminal.
EVERY = 5.0
F = TypeVar("F", bound=Callable[..., Any])
WHERE = "[beginning|end|OFFSET|TIME]"
COLUMNS = ("stage", "batch", "messages", "a second", "ready", "dropped", "broken rules", "failed", "last error")


@click.group(cls=Group)
def pipeline() -> None:
    """Run pipelines: stages on Spark, joined by queues."""


def running_options(command: F) -> F:
    """Add the options of commands that run stages, which `_running` takes."""
    for option in (
        click.option(
            "--master", default="local[2]", show_default=True, help="This machine, a cluster, or sc://HOST:PORT."
        ),
        click.option(
            "--checkpoints", metavar="FOLDER", help="Positions of the stages.  [default: checkpoints/PIPELINE]"
        ),
    ):
        command = option(command)
    return health_options(command)


@pipeline.command()
@click.argument("file", metavar="FILE[:NAME]")
@click.option("--available-now", is_flag=True, help="Run one stage after another, each until no message is left.")
@click.option("--trigger", type=Seconds(0.01), default=1.0, show_default=True, help="Seconds between two polls.")
@running_options
@click.pass_obj
def run(settings: Settings, /, file: str, available_now: bool, trigger: float, **options: Any) -> None:
    """Run the pipeline that the Python file FILE defines, until SIGTERM or Ctrl-C.

    At the first signal every stage finishes its batch; the second one ends the process at once. In either case, and
    after a crash, the next run with the same checkpoints continues where this one stopped.

    A pipeline that names no database uses --url. This command needs Java 17 or newer, and:
    pip install 'tablequeue[spark]'
    """
    chosen = _load(settings, file)
    from tablequeue.spark import pipeline as pipelines

    with _running(settings, chosen, lasting=not available_now, **options) as (given, folder):
        done = pipelines.run(chosen, checkpoints=folder, available_now=available_now, trigger=trigger, **given)
    _print(settings, done)


@pipeline.command()
@click.argument("stage", metavar="PIPELINE/STAGE")
@click.option("--from", "start", type=Position(), required=True, metavar=WHERE, help="The first message.")
@click.option(
    "--to", "end", type=Position(), default="end", metavar=WHERE, help="The end, not included.  [default: end]"
)
@click.option("--file", default="pipeline.py", show_default=True, metavar="FILE[:NAME]", help="Defines the pipeline.")
@running_options
@click.pass_obj
def replay(settings: Settings, /, stage: str, start: Any, end: Any, file: str, **options: Any) -> None:
    """Read the topic of a stage again, into the sinks of the stage, from one position to another.

    A position is beginning, end, an offset, or a time: the first message that was pushed then or later. A day begins in
    UTC. The stage itself may run meanwhile: a replay has a checkpoint of its own, and each row is added once. After a
    stop or a crash the same command goes on.
    """
    chosen = _load(settings, file)
    from tablequeue.spark import pipeline as pipelines
    from tablequeue.spark.pipeline.replaying import replayed

    of, _, name = stage.rpartition("/")
    if of != chosen.name:
        raise BadInput(
            f"{file} defines the pipeline {chosen.name!r}.", f"Write {chosen.name}/STAGE, or name the --file."
        )
    replayed(chosen, name)  # before Spark starts
    with _running(settings, chosen, lasting=False, **options) as (given, folder):
        done = pipelines.replay(chosen, checkpoints=folder, stage=name, start=start, end=end, **given)
    _print(settings, [done])
    if not done.messages:
        click.echo(f"Nothing is left to replay. To repeat it, delete {folder}/{done.stage}.", err=True)


def _load(settings: Settings, file: str) -> Pipeline:
    if settings.url:
        # In the environment of this process and of processes that Spark starts here: Spark's plans would show an
        # option.
        os.environ["TABLEQUEUE_URL"] = settings.url
    with needed_packages("A pipeline", "spark"):
        from tablequeue.spark.pipeline.file import load
    return load(file)


@contextmanager
def _running(
    settings: Settings,
    chosen: Pipeline,
    *,
    lasting: bool,
    checkpoints: str | None,
    master: str,
    health_host: str,
    health_port: int | None,
) -> Iterator[tuple[dict[str, Any], str]]:
    """What a run needs: a session, what stops it, and what watches it; and the folder of the checkpoints."""
    from tablequeue.spark.pipeline.health import Watched

    logs.configure(as_json=settings.json)
    folder = checkpoints or f"checkpoints/{chosen.name}"
    stop = Event()
    watched = Watched(chosen, stop)
    with (
        serving_health(health_host, health_port, lambda: watched.health),
        _session(chosen.name, master, lasting, folder) as spark,
        stop_on_signals(stop.set, _show_cursor),
        _watch(stop) as watch,
    ):

        def noting(progress: Sequence[Progress]) -> None:
            watched.watch(progress)
            watch(progress)

        yield {"spark": spark, "stop": stop, "watch": noting}, folder


def _print(settings: Settings, done: Sequence[Progress]) -> None:
    if settings.json:
        for stage in done:
            print_json(dataclasses.asdict(stage))
    else:
        print_table(COLUMNS, map(_cells, done), cut=COLUMNS[-1])


@contextmanager
def _session(name: str, master: str, lasting: bool, checkpoints: str) -> Iterator[Any]:
    """A session. Its log is beside the checkpoints, or if these are elsewhere, here."""
    from tablequeue.spark.pipeline.refusals import cause_and_remedy
    from tablequeue.spark.session import session

    with tempfile.TemporaryDirectory(prefix="tablequeue-", ignore_cleanup_errors=True) as scratch:
        try:
            beside = Path("." if ":" in checkpoints else checkpoints)
            spark = session(name, master, Path(scratch), lasting, beside / "spark.log")
        except TablequeueError:
            raise
        except Exception as error:
            raise BadInput(
                f"Spark does not start on {master}: {cause_and_remedy(error)[0]}", "Correct --master."
            ) from error
        try:
            yield spark
        finally:
            spark.stop()


def _show_cursor() -> None:
    """Show the cursor, which the table has hidden: an exit at once does not close the table."""
    Console(stderr=True).show_cursor()


@contextmanager
def _watch(stop: Event) -> Iterator[Callable[[Sequence[Progress]], None]]:
    """Show progress on stderr: a table in a terminal, elsewhere lines for the stages that have made progress."""
    console = Console(stderr=True)
    if console.is_terminal:
        with Live(console=console, transient=True) as live:

            def show(progress: Sequence[Progress]) -> None:
                table = table_of(COLUMNS, map(_cells, progress), console.width, COLUMNS[-1])
                table.caption = "stopping after these batches" if stop.is_set() else None
                live.update(table)

            yield show
        return
    last = monotonic()
    said: Sequence[Progress] = ()

    def say(progress: Sequence[Progress]) -> None:
        nonlocal last, said
        if monotonic() - last >= EVERY:
            for stage in progress:
                if stage not in said:
                    click.echo(_line(stage), err=True)
            last, said = monotonic(), progress

    yield say


def _cells(stage: Progress) -> tuple[Any, ...]:
    return (
        stage.stage,
        stage.batch,
        stage.messages,
        round(stage.rate),
        stage.ready,
        stage.dropped,
        sum(stage.violations.values()),
        stage.failed,
        stage.error,
    )


def _line(stage: Progress) -> str:
    ready = "" if stage.ready is None else f", {stage.ready:,} ready"
    dropped = f", {stage.dropped:,} dropped by watermarks" if stage.dropped else ""
    failed = f", {stage.failed:,} failed: {one_line(stage.error or '')}" if stage.failed else ""
    broken = "".join(f", {number:,} break {rule!r}" for rule, number in stage.violations.items() if number)
    return f"{stage.stage}: {stage.messages:,} messages, {stage.rate:,.0f} a second{ready}{dropped}{broken}{failed}"
