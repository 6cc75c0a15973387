"""A Delta table as a sink: the executors write the files, and the driver commits their names, or merges their rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tablequeue.bulk.tables import absolute, check_case, check_partitions, need
from tablequeue.errors import BadInput
from tablequeue.spark.pipeline import files, merging
from tablequeue.spark.pipeline.sinks import Batch, Transform

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable


# Features of a table that ask nothing of a sink that appends, or whose rules are looked for in the columns.
FEATURES = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "identityColumns",
    "invariants",
    "timestampNtz",
    "vacuumProtocolCheck",
    "variantType",
}
# Rules of columns, by the beginnings of their names in the metadata.
RULES = {
    "delta.generationExpression": "is generated from others",
    "delta.identity.": "is an identity",
    "delta.invariants": "has an invariant",
}
# Commits that are tried: each that fails lets another stage's through.
COMMITS = 5


@dataclass(frozen=True, slots=True)
class ToDelta:
    """Puts each batch into a Delta table as one version. Needs the package `tablequeue[delta]`.

    merge_on   columns of a key: a row replaces the values of those that have the same key. Without them, rows are
               appended. Two rows of a batch with one key are refused, as is null in a key.

    The table is made by the first batch. It gets the new columns of later rows; columns that rows lack are null, or
    keep their values in a row that is replaced.

    The driver and all executors must have access to the path. A batch that is broken off leaves files that no version
    has; `DeltaTable(path).vacuum(full=True, dry_run=False)` deletes those of more than a week ago.
    """

    path: str
    partition_by: tuple[str, ...] | list[str] = ()
    transform: Transform | None = None
    merge_on: Sequence[str] = ()

    def __post_init__(self) -> None:
        need("deltalake", "delta")
        if isinstance(self.merge_on, str):
            raise BadInput(f"merge_on is {self.merge_on!r}.", f"Give a list of columns: merge_on=[{self.merge_on!r}].")

    @property
    def target(self) -> str:
        return self.path

    def write(self, rows: DataFrame, batch: Batch) -> None:
        table = self._table(files.schema_of(rows, self.partition_by))
        if _has(table, batch):
            return
        if self.merge_on:
            merging.check_table(table, self._name, self.merge_on)
            merging.check_keys(rows, self._name, self.merge_on, batch.number)
        partitions = table.metadata().partition_columns
        schema = pa.schema(table.schema().to_arrow())
        folder = absolute(self.path)
        written = files.write(rows, folder, batch.prefix, schema, partitions, "merged" if self.merge_on else "delta")
        if not self.merge_on:
            self._commit(table, batch, partial(_append, written=written))
            return
        paths = [f"{folder}/{each.name}" for each in written]
        try:
            self._commit(table, batch, partial(merging.merge, paths=paths, columns=rows.columns, key=self.merge_on))
        finally:
            merging.delete(paths)

    @property
    def _name(self) -> str:
        return f"Delta table {self.path}"

    def _commit(self, table: DeltaTable, batch: Batch, put: Callable[..., None]) -> None:
        """Put the files of a batch into the table, with its number."""
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        once = CommitProperties(app_transactions=[Transaction(batch.writer, batch.number)])
        for left in reversed(range(COMMITS)):
            try:
                put(table, once=once)
                return
            except CommitFailedError:
                # Since the table was opened, another run of the stage may have committed the batch, or another stage
                # may have changed the columns.
                table = self._opened()
                if _has(table, batch):
                    return
                if not left:
                    raise

    def _opened(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(absolute(self.path))

    def _table(self, rows: pa.Schema) -> DeltaTable:
        """The table, made if it is not there, with the columns of the rows."""
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        path = absolute(self.path)
        try:
            columns = Schema.from_arrow(rows).fields
        except Exception as error:  # it raises no other class
            words = str(error).partition("\n")[0]
            raise BadInput(f"A Delta table cannot have these rows: {words}.", "Cast the column.") from None
        if not DeltaTable.is_deltatable(path):
            try:
                settings: dict[str, Any] = merging.settings(self.merge_on) if self.merge_on else {}
                DeltaTable.create(path, rows, partition_by=[*self.partition_by], configuration=settings)
            except DeltaError:
                # Another stage may have made it meanwhile.
                if not DeltaTable.is_deltatable(path):
                    raise
        table = self._opened()
        partitions = table.metadata().partition_columns
        check_partitions(self._name, self.partition_by, partitions)
        _check_rules(table, self._name)
        check_case(self._name, rows.names, [each.name for each in table.schema().fields])
        there = {each.name: each.type for each in table.schema().fields}
        for each in columns:
            if each.name in there and each.type != there[each.name]:
                raise BadInput(
                    f"The column {each.name} has another type in the Delta table {self.path}: {there[each.name].type}.",
                    "Cast the column, or write to another table.",
                )
        if new := [each for each in columns if each.name not in there]:
            table.alter.add_columns(new)
            table = self._opened()
        return table


def _check_rules(table: DeltaTable, name: str) -> None:
    """Raise `BadInput` if a rule of the table asks for more than to append files."""
    found = [
        f"its column {column} {words}"
        for column, key in _marks(json.loads(table.schema().to_json()))
        for mark, words in RULES.items()
        if key.startswith(mark)
    ]
    settings = table.metadata().configuration
    if any(key.startswith("delta.constraints.") for key in settings):
        found.append("it has constraints")
    if settings.get("delta.columnMapping.mode", "none") != "none":
        found.append("its columns have other names in the files")
    if others := {*(table.protocol().writer_features or ())} - FEATURES:
        found.append(f"it has the features {', '.join(sorted(others))}")
    if found:
        raise BadInput(
            f"The {name} has rules that only a writer with an SQL engine keeps: {'; '.join(found)}.",
            "Write to a table of its own, or drop the rules, and check in the stage: rows with an error fail.",
        )


def _marks(schema: Any, column: str = "") -> Iterator[tuple[str, str]]:
    """The keys of the metadata of all columns, and of the fields in them."""
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        inner = column or (part.get("name", "") if isinstance(part, dict) else "")
        if isinstance(part, dict):
            yield from ((inner, key) for key in part.get("metadata", ()))
        yield from _marks(part, inner)


def _append(table: DeltaTable, written: Sequence[files.DataFile], once: CommitProperties) -> None:
    from deltalake.transaction import AddAction

    now = round(time() * 1000)
    added: list[Any] = [AddAction(each.name, each.size, each.partition, now, True, each.stats) for each in written]
    partitions = table.metadata().partition_columns
    table.create_write_transaction(added, "append", table.schema(), partitions, commit_properties=once)


def _has(table: DeltaTable, batch: Batch) -> bool:
    last = table.transaction_version(batch.writer)
    return last is not None and last >= batch.number
