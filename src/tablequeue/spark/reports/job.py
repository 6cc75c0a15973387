"""The job of `tablequeue report`: read new messages into the lake, compute every report, and write the page."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tablequeue.bulk import arrow
from tablequeue.bulk.archive import owner
from tablequeue.bulk.folder import files_in, identity
from tablequeue.consumer import Consumer
from tablequeue.database import Database
from tablequeue.errors import BadInput, ReportFailed
from tablequeue.spark.options import LARGEST
from tablequeue.spark.reports import sections
from tablequeue.spark.reports.backlog import backlog
from tablequeue.spark.reports.consumers import consumers
from tablequeue.spark.reports.errors import errors
from tablequeue.spark.reports.lake import Lake, Window, open_lake
from tablequeue.spark.reports.lost import lost
from tablequeue.spark.reports.messages import NAMES, finished, live
from tablequeue.spark.reports.overview import overview
from tablequeue.spark.reports.throughput import throughput
from tablequeue.spark.reports.times import times
from tablequeue.spark.reports.workers import workers
from tablequeue.spark.session import local_session

Row = dict[str, Any]
Step = Callable[[str], None]

# The environment variable in which the processes of Spark find the URL.
URL_ENV = "TABLEQUEUE_REPORT_URL"
# Possible intervals of throughput and backlog in seconds. The least with at most MOST_ROWS rows is used.
SPANS = (1, 10, 60, 600, 3600, 6 * 3600, 86400)
MOST_ROWS = 200


def report(
    database: Database,
    names: Sequence[str],
    folder: Path,
    window: Window,
    target: float,
    *,
    schema: str | None = None,
    step: Step = lambda name: None,
) -> dict[str, list[Row]]:
    """Report on these queues and subscriptions, or on all that keep a history.

    Writes tables and `report.html` into the lake at `folder`.

    Returns the rows of every report by its name. `target` is that of `consumers`, in seconds. `step` is called with the
    name of each step. Raises `BadInput` if a queue keeps no history, or the folder is not a lake of this database;
    `DriverMissing` without Java; `ReportFailed` if Spark fails. After a crash, the next report continues.

    The process must not have started Spark for another database.
    """
    chosen = _chosen(database, names)
    with (
        open_lake(folder, identity(database.engine, schema)) as lake,
        tempfile.TemporaryDirectory(prefix="tablequeue-") as name,
        _refusals(folder),
    ):
        step("Starting Spark")
        scratch = Path(name)
        source = {"urlEnv": URL_ENV, **({"schema": schema} if schema else {})}
        with _stderr_to(scratch / "stderr"):
            spark = _session(scratch, database.engine.url.render_as_string(hide_password=False))
        try:
            for queue in chosen:
                step(f"Reading {queue.name}")
                read(spark, lake, queue, source)
            found = compute(spark, lake, [queue.name for queue in chosen], window, target, step)
        finally:
            spark.stop()
        step("Drawing the page")
        every = span_of_a_row(found["overview"], window)
        (folder / "report.html").write_text(sections.page(found, target, every, datetime.now(UTC)), "utf-8")
    return found


def read(spark: SparkSession, lake: Lake, queue: Consumer, source: Mapping[str, str]) -> int:
    """Read the new messages of a queue into the lake, also those in its archives there. Returns how many were finished.

    `source` has the options with which Spark finds the database.
    """
    present = read_live(spark, queue)  # first: messages that are finished meanwhile are read as finished
    columns = ",".join(name for name in NAMES if name != "queue")
    reader = spark.read.format("tablequeue").options(**source, queue=queue.name, columns=columns)
    since = lake.since(queue.name)
    if since is not None:
        reader = reader.option("since", since.isoformat())

    def archived() -> DataFrame | None:
        files = [*map(str, files_in(lake.folder, owner(queue)))]
        # Two archives of a queue that ran at once have the same messages.
        return finished(spark.read.parquet(*files), queue.name).dropDuplicates(["id", "finished_at"]) if files else None

    return lake.add(queue.name, present, finished(reader.load(), queue.name), archived)


def read_live(spark: SparkSession, queue: Consumer) -> DataFrame:
    """Return the live messages of a queue.

    This process reads them: they are mostly few, and the data source would start three Python processes for them, which
    take a second or two each.
    """
    columns = arrow.columns(queue, "queue")
    schema = pa.schema([columns.field(name) for name in NAMES if name in columns.names])
    within = arrow.bounds(queue, "queue", arrow.Range(0, LARGEST))
    batches = arrow.batches(queue, "queue", within, schema) if within else ()
    return live(spark.createDataFrame(pa.Table.from_batches(batches, schema)), queue)


def compute(
    spark: SparkSession, lake: Lake, queues: Sequence[str], window: Window, target: float, step: Step
) -> dict[str, list[Row]]:
    """Compute the rows of every report, and write them to the lake's tables.

    To add a report, write a file for it, add a line here, and a part of the page in sections.py.
    """
    step("Computing overview")
    lake.update_sketches(spark)
    messages, hours = lake.messages(spark, queues, window), lake.sketches(spark, queues, window)
    found = {"overview": lake.write("overview", overview(messages))}
    every = span_of_a_row(found["overview"], window)
    events = throughput(messages, every).persist()
    tables = {
        "times": times(hours, "queue"),
        "hours": times(hours, "queue", "hour"),
        "throughput": window.of(events, "at", every),
        "backlog": window.of(backlog(events), "at", every),
        "errors": errors(messages),
        "workers": workers(messages),
        "lost": lost(messages),
        "consumers": window.of(consumers(messages, target), "hour", 3600),
    }
    for name, table in tables.items():
        step(f"Computing {name}")
        found[name] = lake.write(name, table)
    return found


def span_of_a_row(overview: Sequence[Row], window: Window) -> int:
    """Return the interval of a row of throughput and backlog, in seconds."""
    if not overview:
        return SPANS[0]
    first = min(row["first_at"] for row in overview)
    last = max(row["last_at"] for row in overview)
    whole = min(window.until or last, last) - max(window.since or first, first)
    return next((span for span in SPANS if whole.total_seconds() / span <= MOST_ROWS), SPANS[-1])


def _chosen(database: Database, names: Sequence[str]) -> list[Consumer]:
    queues = [database.consumer(name) for name in names or [*database.queues(), *database.subscriptions()]]
    if names:
        for queue in queues:
            queue.history_bounds()  # raises for a queue without a history
    kept = [queue for queue in queues if queue.definition.keeps_history]
    if not kept:
        raise BadInput(
            "No queue of this database keeps a history.",
            "Create a queue with a history, which is the default.",
        )
    return kept


def _session(scratch: Path, url: str) -> SparkSession:
    """Start Spark with the URL in the environment of its processes: a file with a password would survive a kill."""
    os.environ[URL_ENV] = url
    try:
        spark = local_session("report", scratch)
    finally:
        del os.environ[URL_ENV]
    if spark.sparkContext._jvm.System.getenv(URL_ENV) != url:
        spark.stop()
        raise BadInput("This process has already started Spark.", "Run the report in a process of its own.")
    return spark


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect standard error of new processes to a file: Java prints warnings that do not concern the user."""
    own = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


@contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    """Report errors of Spark as `ReportFailed`: their own texts are mostly long tracebacks of Java."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ReportFailed(
            f"Spark failed: {lines[0] if lines else type(error).__name__}",
            f"Correct the cause and run the report again: it continues with {folder}.",
        ) from error
