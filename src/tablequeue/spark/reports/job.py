"""The job of `tablequeue report`: read new messages into the lake, compute every report, and write the page."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq

from tablequeue.bulk import arrow
from tablequeue.bulk.archive import files_in
from tablequeue.consumer import Consumer
from tablequeue.database import Database
from tablequeue.errors import BadInput, DriverMissing
from tablequeue.spark.reports import messages, sections
from tablequeue.spark.reports.backlog import BACKLOG
from tablequeue.spark.reports.consumers import ARRIVALS, consumers
from tablequeue.spark.reports.duck import Duck
from tablequeue.spark.reports.engine import Engine, Row
from tablequeue.spark.reports.errors import ERRORS
from tablequeue.spark.reports.lake import Lake, Window, open_lake
from tablequeue.spark.reports.lost import LOST
from tablequeue.spark.reports.overview import OVERVIEW
from tablequeue.spark.reports.throughput import throughput
from tablequeue.spark.reports.times import percentiles, times
from tablequeue.spark.reports.workers import WORKERS

Step = Callable[[str], None]

# Up to so many messages, DuckDB is faster than Spark is started.
FEW = 500_000
# Possible intervals of a row in seconds. The least is used that gives at most so many rows: of throughput and backlog,
# and of times, whose percentiles need more messages each.
SPANS = (1, 10, 60, 600, 3600, 6 * 3600, 86400)
MOST_ROWS, MOST_TIMES = 200, 60


def report(
    database: Database,
    names: Sequence[str],
    folder: Path,
    window: Window,
    target: float,
    *,
    schema: str | None = None,
    master: str | None = None,
    step: Step = lambda name: None,
) -> dict[str, list[Row]]:
    """Report on these queues and subscriptions, or on all that keep a history.

    Writes tables and `report.html` into the lake at `folder`.

    Returns the rows of every report by its name. `target` is that of `consumers`, in seconds. `step` is called with the
    name of each step. DuckDB computes the report of up to FEW messages, Spark that of more. Raises `BadInput` if a
    queue keeps no history, or the folder is not a lake of this database; `DriverMissing` without Spark or Java if it
    is needed; `ReportFailed` if one of them fails. After a crash, the next report continues.

    If Spark is needed, it runs on this machine, and the process must not have started it for another database; or on
    the cluster or the server of Spark Connect at `master`, which then needs access to the folder by the same path.
    """
    folder = folder.absolute()
    chosen = _chosen(database, names)
    queues = [queue.name for queue in chosen]
    with (
        open_lake(folder, database.identity()) as lake,
        _engine(database, schema, master, lake, chosen, step) as engine,
    ):
        for queue in chosen:
            step(f"Reading {queue.name}")
            read(engine, lake, queue)
        found = compute(engine, lake, queues, window, target, step)
    step("Drawing the page")
    every, of_times = spans_of_rows(found["overview"], window)
    (folder / "report.html").write_text(sections.page(found, target, every, of_times, datetime.now(UTC)), "utf-8")
    return found


def read(engine: Engine, lake: Lake, queue: Consumer) -> int:
    """Read the new messages of a queue into the lake, also those in its archives there. Returns how many had ended."""
    engine.load("live", messages.live(queue))  # first: messages that end meanwhile are read as ended
    engine.history("ended", queue, lake.since(queue.name))

    def archived() -> bool:
        files = files_in(lake.folder, queue)
        if files:
            engine.archived("archived", queue, files)
        return bool(files)

    return lake.add(engine, queue.name, archived)


def compute(
    engine: Engine, lake: Lake, queues: Sequence[str], window: Window, target: float, step: Step
) -> dict[str, list[Row]]:
    """Compute the rows of every report, and write them to the lake's tables.

    To add a report, write a file for it, add a line here, and a part of the page in sections.py.
    """
    step("Computing overview")
    lake.read(engine, queues, window)
    found = {"overview": lake.write(engine, "overview", OVERVIEW)}
    every, of_times = spans_of_rows(found["overview"], window)
    engine.keep("throughput", throughput(every))
    engine.define("times", window.of(times(of_times), "at", of_times))
    engine.by_hour("consumers", ARRIVALS, lambda hour: consumers(hour, target))
    tables = {
        "times": percentiles("queue"),
        "spans": percentiles("queue", "at"),
        "throughput": window.of("select * from throughput", "at", every),
        "backlog": window.of(BACKLOG, "at", every),
        "errors": ERRORS,
        "workers": WORKERS,
        "lost": LOST,
        "consumers": window.of("select * from consumers", "hour", 3600),
    }
    for name, text in tables.items():
        step(f"Computing {name}")
        found[name] = lake.write(engine, name, text)
    return found


def spans_of_rows(overview: Sequence[Row], window: Window) -> tuple[int, int]:
    """Return the intervals of a row in seconds: of throughput and backlog, and of times."""
    if not overview:
        return SPANS[0], SPANS[0]
    first = min(row["first_at"] for row in overview)
    last = max(row["last_at"] for row in overview)
    whole = (min(window.until or last, last) - max(window.since or first, first)).total_seconds()
    every, of_times = (
        next((span for span in SPANS if whole / span <= most), SPANS[-1]) for most in (MOST_ROWS, MOST_TIMES)
    )
    return every, of_times


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


@contextmanager
def _engine(
    database: Database, schema: str | None, master: str | None, lake: Lake, queues: Sequence[Consumer], step: Step
) -> Iterator[Engine]:
    """Start DuckDB, or Spark if there are many messages in the lake and to be read."""
    size = lake.size([queue.name for queue in queues]) + sum(_most(queue, lake) for queue in queues)
    with tempfile.TemporaryDirectory(prefix="tablequeue-") as name:
        scratch = Path(name)
        if size <= FEW:
            with closing(Duck(scratch)) as duck:
                yield duck
            return
        step("Starting Spark")
        try:
            from tablequeue.spark.reports import cluster
        except ImportError as error:
            raise DriverMissing(
                f"A report on {size:,} messages needs the package {error.name}, which is not installed.",
                "Run: pip install 'tablequeue[spark,report]'",
            ) from None
        with cluster.started(database.engine.url, schema, scratch, master) as spark:
            yield spark


def _most(queue: Consumer, lake: Lake) -> int:
    """Return the most messages that there may be to read, by the first and the last id."""
    since = lake.since(queue.name)
    ranges: list[tuple[arrow.Source, datetime | None]] = [("queue", None), ("history", since)]
    bounds = (arrow.bounds(queue, source, messages.EVERY._replace(since=at)) for source, at in ranges)
    live_and_ended = sum(found.high - found.low + 1 for found in bounds if found)
    return live_and_ended + sum(pq.read_metadata(file).num_rows for file in files_in(lake.folder, queue))
