"""A table of the user as a sink: the executors stage the rows, and the driver puts all of them there at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from tablequeue.bulk import user_tables
from tablequeue.bulk.user_tables import Write
from tablequeue.database import Database
from tablequeue.errors import BadInput
from tablequeue.spark.options import Options
from tablequeue.spark.pipeline.files import column
from tablequeue.spark.pipeline.sinks import Batch, Transform

_NESTED = (ArrayType, MapType, StructType, VariantType)
_WITH_NULLS = {"ignoreNullFields": "false"}
_RETURNS = "attempt string, rows bigint"


@dataclass(frozen=True, slots=True)
class ToTable:
    """Puts all rows of a batch at once into a table of your own, in the transaction that notes the number of the batch.

    table      its name. Your migrations make it: a sink never makes or changes it.
    key        columns with a unique index: a row replaces the values of the one that has the same key. Without a key,
               rows are inserted.
    schema     of the table, if it is not that of the connection.
    url, url_env, url_file   another database than that of the queues, as for `Pipeline`.

    Columns are found by name. A column that the rows lack keeps its value, and has its default in a new row. Two rows
    of a batch with one key are refused, as is null in a key.

    The tables `tq__writers` and `tq__writes`, and one for each batch that is being written, are in the schema of the
    queues; in another database, in that of the connection.
    """

    table: str
    key: Sequence[str] = ()
    schema: str | None = None
    url: str | None = None
    url_env: str | None = None
    url_file: str | None = None
    transform: Transform | None = None

    def __post_init__(self) -> None:
        if isinstance(self.key, str):
            raise BadInput(f"The key is {self.key!r}.", f"Give a list of columns: key=[{self.key!r}].")
        if self._elsewhere:
            Options.of_database(self._elsewhere)  # raises here what it would raise later

    @property
    def target(self) -> str:
        return f"table {self.table}" if self.schema is None else f"table {self.schema}.{self.table}"

    @property
    def _elsewhere(self) -> dict[str, str]:
        """The options of another database."""
        given = {"url": self.url, "urlEnv": self.url_env, "urlFile": self.url_file}
        return {name: value for name, value in given.items() if value is not None}

    def write(self, rows: DataFrame, batch: Batch) -> None:
        options = self._elsewhere or batch.options
        database = Options.of_database(options).connect() if self._elsewhere else batch.database
        with user_tables.writing(database, self._compared(rows, database, batch)) as write:
            values = [
                f.to_json(column(each.name), _WITH_NULLS) if isinstance(each.dataType, _NESTED) else column(each.name)
                for each in rows.schema
            ]
            numbered = rows.select(*(value.alias(f"c{number}") for number, value in enumerate(values)))
            staged = numbered.mapInArrow(partial(_stage, options, write), _RETURNS).collect()
            name = f"{batch.writer} {write.target}"
            user_tables.put(database, write, {each.attempt: each.rows for each in staged}, name, batch.number)

    def _compared(self, rows: DataFrame, database: Database, batch: Batch) -> Write:
        """Compare the rows with the table, once in a run."""
        given = _schema(rows)
        before, write = batch.known.get(self.target, (None, None))
        if before != given:
            words = {each.name: each.dataType.simpleString() for each in rows.schema}
            write = user_tables.compare(database, self.table, self.schema, self.key, given, words)
            batch.known[self.target] = given, write
        return write


def _schema(rows: DataFrame) -> pa.Schema:
    for each in rows.schema:
        if each.dataType.typeName() == "void":
            cast = f"f.lit(None).cast('string').alias({each.name!r})"
            raise BadInput(f"The column {each.name} has no type.", f"Cast it: {cast}.")
    return to_arrow_schema(rows.schema, timezone="UTC")


def _stage(options: Mapping[str, str], write: Write, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stage the rows of a task; return its attempt and their number. If the task fails, nobody asks for its attempt."""
    attempt = uuid4().hex
    named = (each.rename_columns([*write.rows.columns]) for each in batches)
    count = user_tables.stage(Options.of_database(options).connect(), write, attempt, named)
    yield pa.RecordBatch.from_pydict({"attempt": [attempt], "rows": pa.array([count], pa.int64())})
