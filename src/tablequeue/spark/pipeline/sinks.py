"""Where a stage writes. All sinks but `ForeachBatch` write a batch once, however often Spark repeats it after a crash.

A batch is identified by the id of its query and its number, both of which the checkpoint has. A new checkpoint has a
new id, under which the numbers begin again. So no new batch is mistaken for a repetition, and none is lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from tablequeue.bulk import staging
from tablequeue.bulk.tables import check_case
from tablequeue.database import Database
from tablequeue.errors import BadInput

Transform = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch that a sink writes.

    stage      `pipeline/stage`.
    query      id of the query in the checkpoint.
    number     number of the batch in the checkpoint, from 0.
    known      what sinks have learnt in this run of the query.
    database   the database of the queues; `options` are the data source's options for it.
    """

    stage: str
    query: str
    number: int
    database: Database
    options: Mapping[str, str]
    known: dict[str, Any] = field(default_factory=dict)

    @property
    def writer(self) -> str:
        return f"{self.stage}:{self.query}"

    @property
    def prefix(self) -> str:
        """What the names of its files begin with."""
        return f"batch-{self.number:06}"


class Sink(Protocol):
    @property
    def target(self) -> str | None:
        """The name of the destination, if a stage can have only one sink for it."""

    @property
    def transform(self) -> Transform | None:
        """A function from the rows of the stage to those of this sink; None for the same rows."""

    def write(self, rows: DataFrame, batch: Batch) -> None: ...


@dataclass(frozen=True, slots=True)
class ToQueue:
    """Pushes all rows of a batch at once.

    It uses the columns payload, headers, priority, group, key and due, as far as the queue supports them.
    on_conflict   `raise`, or `skip` messages whose key is taken.
    """

    queue: str
    transform: Transform | None = None
    on_conflict: Literal["raise", "skip"] = "raise"

    @property
    def target(self) -> str:
        return f"queue {self.queue}"

    def write(self, rows: DataFrame, batch: Batch) -> None:
        accepted = staging.written(batch.database.queue(self.queue))
        _push(rows, batch, accepted, queue=self.queue, onConflict=self.on_conflict)


@dataclass(frozen=True, slots=True)
class ToTopic:
    """Pushes all rows of a batch at once, from the columns payload, headers and group."""

    topic: str
    transform: Transform | None = None

    @property
    def target(self) -> str:
        return f"topic {self.topic}"

    def write(self, rows: DataFrame, batch: Batch) -> None:
        _push(rows, batch, staging.written(batch.database.topic(self.topic)), topic=self.topic)


@dataclass(frozen=True, slots=True)
class ToParquet:
    """Writes each batch into its own folder, `path/batch=000012-<query>/`, with partitions in it.

    So every program that reads the files sees a row once, and Spark adds a column `batch`. Spark's file sink would
    write all batches into one folder, with a log of the valid files that only Spark reads.

    A column that the files have, and the rows lack, is null. `BadInput`, before anything is written, for a column of
    another type than there, and for one whose name differs only in case.

    The driver and all executors must have access to the path. While a batch is written, a part of it can be read.
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
                "The rows for Parquet have a column batch, which is the name of the partition of each batch.",
                "Give it another name.",
            )
        folder = f"{self.path}/batch={batch.number:06}-{batch.query}"
        # A second write would have other file names, which a stream that reads the folder would take for new files.
        if not exists(rows.sparkSession, f"{folder}/_SUCCESS"):
            rows = self._with_columns_there(rows, batch)
            rows.write.mode("overwrite").partitionBy(*self.partition_by).parquet(folder)

    def _with_columns_there(self, rows: DataFrame, batch: Batch) -> DataFrame:
        """Check the columns, which no table knows. So every batch has all of them, and the last one is enough to look
        at, unless it was of another checkpoint."""
        if self.path not in batch.known:
            last = f"{self.path}/batch={batch.number - 1:06}-{batch.query}"
            there = _columns(rows.sparkSession, last) or _columns(rows.sparkSession, self.path)
            batch.known[self.path] = {name: kind for name, kind in there.items() if name != "batch"}
        there = batch.known[self.path]
        check_case("files", rows.columns, [*there])
        for name, kind in rows.dtypes:
            before = there[name].simpleString() if name in there and name not in self.partition_by else kind
            if kind != before:
                raise BadInput(
                    f"The column {name} is of type {kind}, and of type {before} in the files of {self.path!r}.",
                    "Cast it in the stage, or write to another folder.",
                )
        lacking = {name: f.lit(None).cast(kind) for name, kind in there.items() if name not in rows.columns}
        return rows.withColumns(lacking) if lacking else rows


@dataclass(frozen=True, slots=True)
class ForeachBatch:
    """Calls a function with each batch and its number, as Spark's own foreachBatch does.

    After a crash it is called again for the last batch, with the same number. With a new checkpoint the numbers begin
    again.
    """

    function: Callable[[DataFrame, int], None]
    transform: Transform | None = None

    @property
    def target(self) -> None:
        return None

    def write(self, rows: DataFrame, batch: Batch) -> None:
        self.function(rows, batch.number)


def _push(rows: DataFrame, batch: Batch, accepted: Container[str], **target: str) -> None:
    """Push the columns of the rows that the target accepts."""
    rows = rows.select([name for name in rows.columns if name in accepted])
    identity = {"producer": batch.stage, "writer": batch.writer, "batch": batch.number}
    rows.write.format("tablequeue").mode("append").options(**batch.options, **identity, **target).save()


def _columns(spark: SparkSession, path: str) -> dict[str, DataType]:
    """Return the columns of all Parquet files below a path, with their types; none if there is no file."""
    try:
        found = spark.read.option("mergeSchema", "true").parquet(_quoted(path)).schema
    except AnalysisException as error:
        if error.getCondition() not in ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA"):
            raise
        return {}
    return {each.name: each.dataType for each in found}


def exists(spark: SparkSession, path: str) -> bool:
    """Whether a path exists, on any file system of Spark. `text` looks for it, and reads nothing."""
    try:
        return bool(spark.read.text(_quoted(path)).columns)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return False


def _quoted(path: str) -> str:
    """A path in which Spark finds no pattern."""
    return re.sub(r"([][{}*?\\])", r"\\\1", path)
