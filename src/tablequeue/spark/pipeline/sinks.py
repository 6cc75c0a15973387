"""Where a stage writes. All but `ForeachBatch` write a batch once, however often Spark repeats it after a crash.

A batch is known by the query, which its checkpoint has the id of, and by its number there. With a new checkpoint the
numbers begin again under a new id: nothing is taken for a repetition that is none, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, Protocol

from pyspark.sql import DataFrame

from tablequeue import staging
from tablequeue.database import Database
from tablequeue.errors import BadInput, DriverMissing

Transform = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class Batch:
    """What a sink must know of the batch that it writes.

    stage      pipeline and stage, as `pipeline/stage`.
    query      the id that the checkpoint gives to the query.
    number     that of the batch, from 0, by the checkpoint.
    database   where the queues are; `options` say it to Spark.
    """

    stage: str
    query: str
    number: int
    database: Database
    options: Mapping[str, str]

    @property
    def writer(self) -> str:
        return f"{self.stage}:{self.query}"


class Sink(Protocol):
    @property
    def target(self) -> str | None:
        """What it writes to, in words, if a stage can have one sink to it only."""

    @property
    def transform(self) -> Transform | None:
        """Makes the rows for this sink of the stage's; None for these themselves."""

    def write(self, rows: DataFrame, batch: Batch) -> None: ...


@dataclass(frozen=True, slots=True)
class ToQueue:
    """Pushes the rows of a batch, all at once.

    Of the columns those are taken that the queue has a use for: payload, headers, priority, group, key, due.
    on_conflict   `raise`, or `skip`: what happens to a message whose key is taken.
    """

    queue: str
    transform: Transform | None = None
    on_conflict: Literal["raise", "skip"] = "raise"

    @property
    def target(self) -> str:
        return f"queue {self.queue}"

    def write(self, rows: DataFrame, batch: Batch) -> None:
        taken = staging.written(batch.database.queue(self.queue))
        options = {
            "queue": self.queue,
            "onConflict": self.on_conflict,
            "producer": batch.stage,
            "writer": batch.writer,
            "batch": batch.number,
        }
        rows = rows.select([name for name in rows.columns if name in taken])
        rows.write.format("tablequeue").mode("append").options(**batch.options, **options).save()


@dataclass(frozen=True, slots=True)
class ToParquet:
    """Writes each batch into a folder of its own, `path/batch=000012-<query>/`, and partitions that.

    So every reader sees a row once, and Spark's own readers get a column `batch`. Spark's file sink would write into
    one folder, with a log of the good files that no other program reads.

    The path is one that the driver and all executors see. A reader of that moment may see a part of the batch.
    """

    path: str
    partition_by: tuple[str, ...] | list[str] = ()
    transform: Transform | None = None

    @property
    def target(self) -> str:
        return self.path

    def write(self, rows: DataFrame, batch: Batch) -> None:
        if "batch" in rows.columns:
            raise BadInput(
                "A row for Parquet has a column batch, which is what the folder of each batch is called.",
                "Give it another name.",
            )
        folder = f"{self.path}/batch={batch.number:06}-{batch.query}"
        # Written again it would have other file names, and a stream that reads the folder would take them as new.
        if not _exists(rows, f"{folder}/_SUCCESS"):
            rows.write.mode("overwrite").partitionBy(*self.partition_by).parquet(folder)


@dataclass(frozen=True, slots=True)
class ToDelta:
    """Appends each batch to a Delta table as one version of it; the package is `tablequeue[delta]`.

    The driver writes, and has the whole batch in its memory: see `FromQueue.max_messages_per_trigger`.
    """

    path: str
    partition_by: tuple[str, ...] | list[str] = ()
    transform: Transform | None = None

    def __post_init__(self) -> None:
        if find_spec("deltalake") is None:
            raise DriverMissing("The package deltalake is not installed.", "Run: pip install 'tablequeue[delta]'")

    @property
    def target(self) -> str:
        return self.path

    def write(self, rows: DataFrame, batch: Batch) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        if DeltaTable.is_deltatable(self.path):
            last = DeltaTable(self.path).transaction_version(batch.writer)
            if last is not None and last >= batch.number:
                return
        once = CommitProperties(app_transactions=[Transaction(batch.writer, batch.number)])
        columns = [*self.partition_by] or None
        write_deltalake(self.path, rows.toArrow(), mode="append", partition_by=columns, commit_properties=once)


@dataclass(frozen=True, slots=True)
class ForeachBatch:
    """Any function of a batch and its number, as Spark's own foreachBatch takes it.

    After a crash it gets the last batch again, under the same number; under a new checkpoint the numbers begin again.
    """

    function: Callable[[DataFrame, int], None]
    transform: Transform | None = None

    @property
    def target(self) -> None:
        return None

    def write(self, rows: DataFrame, batch: Batch) -> None:
        self.function(rows, batch.number)


def _exists(rows: DataFrame, path: str) -> bool:
    """On whatever file system Spark would write it."""
    context = rows.sparkSession.sparkContext
    found = context._jvm.org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(context._jsc.hadoopConfiguration()).exists(found)
