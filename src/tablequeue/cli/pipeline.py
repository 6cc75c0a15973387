"""`tablequeue pipeline`: run the stages of a pipeline on Spark."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.live import Live

from tablequeue.cli.commands import Group, Settings, needed_packages
from tablequeue.cli.long_running import configure_logs, health_options, serving_health
from tablequeue.cli.options import Position, Seconds
from tablequeue.cli.output import one_line, print_json, print_table, table_of
from tablequeue.errors import BadInput, TablequeueError
from tablequeue.worker.signals import stop_on_signals

if TYPE_CHECKING:
    from tablequeue.spark.pipeline import Pipeline, Progress
    from tablequeue.spark.pipeline.status import StatusFile

# Seconds between two reports of progress, if there is no terminal.
EVERY = 5.0
F = TypeVar("F", bound=Callable[..., Any])
WHERE = "[beginning|end|OFFSET|TIME]"
# The file with the progress of the run, beside the checkpoints.
STATUS = "status.json"
COLUMNS = "stage|batch|seconds|messages|a second|rows out|lag|lag in s|dropped|broken rules|failed|last error".split(
    "|"
)
# Those that are left out while no stage has anything in them.
RARE = {"lag in s", "dropped", "broken rules", "failed", "last error"}


@click.group(cls=Group)
def pipeline() -> None:
    """Run pipelines: stages on Spark, joined by queues."""


checkpoints_option = click.option(
    "--checkpoints", metavar="FOLDER", help="Positions of the stages.  [default: checkpoints/PIPELINE]"
)


def running_options(command: F) -> F:
    """Add the options of commands that run stages, which `_running` takes."""
    for option in (
        click.option(
            "--master", default="local[2]", show_default=True, help="This machine, a cluster, or sc://HOST:PORT."
        ),
        checkpoints_option,
        click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark; repeat it for others."),
        click.option("--jars", metavar="FILES", help="Jars for Spark, separated by commas."),
        click.option("--packages", metavar="NAMES", help="Packages of Maven, as group:name:version, with commas."),
        click.option("--ui", is_flag=True, help="Serve Spark's own pages while it runs."),
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
        noted, watch = _status_file(folder), given["watch"]

        def noting(progress: Sequence[Progress]) -> None:
            noted.note(progress)
            watch(progress)

        given["watch"] = noting
        try:
            done = pipelines.run(chosen, checkpoints=folder, available_now=available_now, trigger=trigger, **given)
        finally:
            noted.ended()
    _print(settings, done)


@pipeline.command()
@click.argument("file", metavar="FILE[:NAME]")
@checkpoints_option
@click.pass_obj
def status(settings: Settings, file: str, checkpoints: str | None) -> None:
    """Show the progress of the last run of a pipeline, and how far its stages are behind now.

    Run it where the pipeline runs: it reads a file that `pipeline run` writes each second beside the checkpoints.
    """
    chosen = _load(settings, file)
    from tablequeue.spark.pipeline.status import status as status_of

    noted = status_of(chosen, _status_file(_folder(chosen, checkpoints)))
    state = {"running": noted.running, "noted_at": noted.at}
    if settings.json:
        for stage in noted.stages:
            print_json({**dataclasses.asdict(stage), **state})
        return
    _print(settings, noted.stages)
    words = "The pipeline was running" if noted.running else "The run ended"
    click.echo(f"{words} at {noted.at:%Y-%m-%d %H:%M:%S} UTC.")


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
    conf: Sequence[str],
    jars: str | None,
    packages: str | None,
    ui: bool,
    health_host: str,
    health_port: int | None,
) -> Iterator[tuple[dict[str, Any], str]]:
    """What a run needs: a session, what stops it, and what watches it; and the folder of the checkpoints."""
    from tablequeue.spark.pipeline.health import Watched
    from tablequeue.spark.pipeline.stages import check_conf

    given = {name: value for name, _, value in (each.partition("=") for each in conf)}
    flags = {"spark.jars": jars, "spark.jars.packages": packages, "spark.ui.enabled": "true" if ui else None}
    settled = chosen.conf | check_conf(given) | {name: value for name, value in flags.items() if value is not None}
    configure_logs(as_json=settings.json)
    folder = _folder(chosen, checkpoints)
    stop = Event()
    watched = Watched(chosen, stop)
    with (
        serving_health(health_host, health_port, lambda: watched.health),
        _session(chosen.name, master, lasting, folder, settled) as spark,
        stop_on_signals(stop.set, _show_cursor),
        _watch(stop) as watch,
    ):

        def noting(progress: Sequence[Progress]) -> None:
            watched.watch(progress)
            watch(progress)

        if ui and (pages := spark.sparkContext.uiWebUrl):
            click.echo(f"Spark's pages are at {pages}.", err=True)
        yield {"spark": spark, "stop": stop, "watch": noting}, folder


def _print(settings: Settings, done: Sequence[Progress]) -> None:
    if settings.json:
        for stage in done:
            print_json(dataclasses.asdict(stage))
    else:
        columns, rows, cut = _table(done)
        print_table(columns, rows, cut=cut)


@contextmanager
def _session(name: str, master: str, lasting: bool, checkpoints: str, conf: Mapping[str, str]) -> Iterator[Any]:
    """A session. Its log is beside the checkpoints, or if these are elsewhere, here."""
    from tablequeue.spark.pipeline.refusals import cause_and_remedy
    from tablequeue.spark.session import session

    with tempfile.TemporaryDirectory(prefix="tablequeue-", ignore_cleanup_errors=True) as scratch:
        try:
            spark = session(name, master, Path(scratch), lasting, _beside(checkpoints) / "spark.log", conf)
        except TablequeueError:
            raise
        except Exception as error:
            raise BadInput(
                f"Spark does not start on {master}: {cause_and_remedy(error)[0]}",
                "Correct --master, or the settings." if conf else "Correct --master.",
            ) from error
        try:
            yield spark
        finally:
            spark.stop()


def _folder(chosen: Pipeline, checkpoints: str | None) -> str:
    return checkpoints or f"checkpoints/{chosen.name}"


def _status_file(checkpoints: str) -> StatusFile:
    from tablequeue.spark.pipeline.status import StatusFile

    return StatusFile(_beside(checkpoints) / STATUS)


def _beside(checkpoints: str) -> Path:
    """Return the folder for files beside the checkpoints; the current folder if the checkpoints are not on this
    machine."""
    return Path("." if ":" in checkpoints else checkpoints)


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
                columns, rows, cut = _table(progress)
                table = table_of(columns, rows, console.width, cut)
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


def _table(stages: Sequence[Progress]) -> tuple[list[str], list[list[Any]], str | None]:
    """The columns, the rows, and the column that is cut."""
    rows = [_cells(stage) for stage in stages]
    chosen = [place for place, name in enumerate(COLUMNS) if name not in RARE or any(row[place] for row in rows)]
    shown = [COLUMNS[place] for place in chosen]
    return shown, [[row[place] for place in chosen] for row in rows], shown[-1] if shown[-1] == COLUMNS[-1] else None


def _cells(stage: Progress) -> tuple[Any, ...]:
    return (
        stage.stage,
        stage.batch,
        None if stage.seconds is None else round(stage.seconds, 1),
        stage.messages,
        round(stage.rate),
        stage.written,
        stage.lag,
        None if stage.lag_seconds is None else round(stage.lag_seconds),
        stage.dropped,
        sum(stage.violations.values()),
        stage.failed,
        stage.error,
    )


def _line(stage: Progress) -> str:
    age = "" if stage.lag_seconds is None else f" and {stage.lag_seconds:,.0f} s"
    lag = "" if stage.lag is None else f", {stage.lag:,} messages{age} behind"
    dropped = f", {stage.dropped:,} dropped by watermarks" if stage.dropped else ""
    failed = f", {stage.failed:,} failed: {one_line(stage.error or '')}" if stage.failed else ""
    broken = "".join(f", {number:,} break {rule!r}" for rule, number in stage.violations.items() if number)
    return f"{stage.stage}: {stage.messages:,} messages, {stage.rate:,.0f} a second{lag}{dropped}{broken}{failed}"
