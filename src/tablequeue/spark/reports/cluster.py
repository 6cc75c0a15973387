"""Reports by Spark: for histories that one process would be too slow for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import sqlalchemy as sa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from tablequeue.consumer import Consumer
from tablequeue.errors import BadInput, ReportFailed
from tablequeue.model.redaction import has_password
from tablequeue.spark.reports.consumers import COLUMNS as HOUR
from tablequeue.spark.reports.engine import ByHour, Row
from tablequeue.spark.reports.messages import SCHEMA
from tablequeue.spark.session import local_session, session

# The environment variable in which the processes of Spark find the URL.
URL_ENV = "TABLEQUEUE_REPORT_URL"
# And that in which those of a cluster find it, as for a pipeline.
ITS_URL_ENV = "TABLEQUEUE_URL"

_ERRORS = "array<struct<attempt: int, at: {}, consumer: string, error: string>>"
_TYPES = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.timestamp("us", "UTC"): "timestamp",
    SCHEMA.field("errors").type: _ERRORS.format("timestamp"),
}
_MESSAGE = ", ".join(f"{one.name} {_TYPES[one.type]}" for one in SCHEMA)
COLUMNS = f"queue string, {_MESSAGE}"
"""The columns of `messages` in Spark."""

# Spark quotes identifiers by backticks, and reads escapes in strings.
_SPELLING = str.maketrans({'"': "`", "\\": "\\\\"})


class Spark:
    """An `Engine`, by any session, whose zone is UTC. `source` has the options with which Spark finds the database."""

    def __init__(self, spark: SparkSession, source: Mapping[str, str] | None = None) -> None:
        self._session = spark
        self._source = source or {}

    def frame(self, text: str) -> DataFrame:
        return self._session.sql(text.translate(_SPELLING))

    def load(self, name: str, table: pa.Table) -> None:
        self._session.createDataFrame(table).createOrReplaceTempView(name)

    def history(self, name: str, queue: Consumer, since: datetime | None) -> None:
        reader = self._session.read.format("tablequeue").options(
            **self._source, queue=queue.name, columns=",".join(SCHEMA.names)
        )
        if since is not None:
            reader = reader.option("since", since.isoformat())
        ended(reader.load()).createOrReplaceTempView(name)

    def archived(self, name: str, queue: Consumer, files: Sequence[str]) -> None:
        ended(self._session.read.parquet(*files)).createOrReplaceTempView(name)

    def open(self, name: str, folders: Sequence[Path], within: str = "true") -> None:
        there = [str(folder) for folder in folders if folder.exists()]
        columns = f"{COLUMNS}, day date"
        if there:
            # Spark finds the queue in the names of the folders below the base.
            files = self._session.read.schema(columns).option("basePath", str(folders[0].parent)).parquet(*there)
        else:
            files = self._session.createDataFrame([], columns)
        files.where(within.translate(_SPELLING)).select("queue", *SCHEMA.names).createOrReplaceTempView(name)

    def define(self, name: str, text: str) -> None:
        self.frame(text).createOrReplaceTempView(name)

    def keep(self, name: str, text: str) -> None:
        self.frame(text).persist().createOrReplaceTempView(name)

    def rows(self, text: str) -> list[Row]:
        return [row.asDict() for row in self.frame(text).collect()]

    def by_hour(self, name: str, text: str, row: ByHour) -> None:
        columns = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in HOUR.items())
        self.frame(text).groupBy("queue", "hour").applyInArrow(row, columns).createOrReplaceTempView(name)

    def add(self, folder: Path, text: str) -> int:
        added = Observation()
        frame = self.frame(text).observe(added, f.count(f.lit(1)).alias("messages"))
        frame.write.partitionBy("day").parquet(str(folder), "append")
        return int(added.get["messages"])

    def replace(self, folder: Path, text: str) -> None:
        self.frame(text).coalesce(1).write.parquet(str(folder), "overwrite")


def ended(history: DataFrame) -> DataFrame:
    """Return the messages of a history that have ended, as the data source reads it, in a session with the zone UTC."""
    errors = f.from_json(f.coalesce("errors", f.lit("[]")), _ERRORS.format("string"))
    errors = f.transform(errors, lambda error: error.withField("at", _time(error["at"])))
    return history.where("finished_at is not null").withColumn("errors", errors).select(*SCHEMA.names)


def _time(text: Column) -> Column:
    """Parse a time in the errors, which engines write as microseconds or as text."""
    return f.coalesce(f.timestamp_micros(text.try_cast("bigint")), text.try_cast("timestamp"))


@contextmanager
def started(url: sa.URL, schema: str | None, scratch: Path, master: str | None = None) -> Iterator[Spark]:
    """Start Spark on this machine, or on the cluster or the server of Spark Connect at `master`.

    A cluster gets no password: it finds the URL of the database in its own TABLEQUEUE_URL.

    Raises `BadInput` if the process has started Spark for another database, or if nothing answers at `master`;
    `DriverMissing` without Java, and `ReportFailed` if Spark fails.
    """
    with _refusals():
        with _stderr_to(scratch / "stderr"):
            spark, source = _elsewhere(url, scratch, master) if master else _here(url, scratch)
        try:
            spark.conf.set("spark.sql.session.timeZone", "UTC")
            yield Spark(spark, {**source, **({"schema": schema} if schema else {})})
        finally:
            spark.stop()


def _here(url: sa.URL, scratch: Path) -> tuple[SparkSession, dict[str, str]]:
    """Start Spark with the URL in the environment of its processes: a file with a password would survive a kill."""
    os.environ[URL_ENV] = text = url.render_as_string(hide_password=False)
    try:
        spark = local_session("report", scratch)
    finally:
        del os.environ[URL_ENV]
    if spark.sparkContext._jvm.System.getenv(URL_ENV) != text:
        spark.stop()
        raise BadInput("This process has already started Spark.", "Run the report in a process of its own.")
    return spark, {"urlEnv": URL_ENV}


def _elsewhere(url: sa.URL, scratch: Path, master: str) -> tuple[SparkSession, dict[str, str]]:
    text = url.render_as_string(hide_password=False)
    source = {"urlEnv": ITS_URL_ENV} if has_password(text) else {"url": text}
    return session("report", master, scratch), source


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
def _refusals() -> Iterator[None]:
    """Report errors of Spark as `ReportFailed`: their own texts are mostly long tracebacks of Java."""
    try:
        yield
    except (Py4JError, PySparkException) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ReportFailed(
            f"Spark failed: {lines[0] if lines else type(error).__name__}",
            "Correct the cause and run the report again: it continues with the same folder.",
        ) from error
