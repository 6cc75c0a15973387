"""PyIceberg's SQL catalogue in the database of the queues, with commits that are refused if their batch is there.

PyIceberg itself takes a URL, and keeps it, with its password, among the properties that it hands to file systems. Here
it gets the connections of the database instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import IcebergNamespaceProperties, IcebergTables, SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationError,
    ValidationException,
)
from pyiceberg.io.pyarrow import MetricModeTypes, UnsupportedPyArrowTypeException, compute_statistics_plan
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate
from pyiceberg.transforms import IdentityTransform

from tablequeue.errors import BadInput
from tablequeue.spark.pipeline.files import absolute, check_partitions
from tablequeue.spark.pipeline.sinks import Batch

NAME = "tablequeue"
# Looks for the tables of the catalogue, while other stages may be making them one by one.
TRIES = 5
# What PyIceberg raises for columns that a table cannot have.
UNFIT = (UnsupportedPyArrowTypeException, TypeError, ValueError, ValidationError)
# Each commit writes the metadata anew: the last hundred versions are kept.
PROPERTIES = {"write.metadata.delete-after-commit.enabled": "true"}


class BatchIsThere(ValidationException):
    """The table has this batch."""


@dataclass(frozen=True, slots=True)
class Once:
    """A requirement of a commit: the table does not have the batch.

    It is checked against the metadata that the commit replaces, so no other run can commit the batch in between.
    """

    key: str
    number: int

    def validate(self, base_metadata: TableMetadata | None) -> None:
        if base_metadata is not None and int(base_metadata.properties.get(self.key, -1)) >= self.number:
            raise BatchIsThere


class Catalogue(SqlCatalog):
    """The catalogue of the tables, for the commits of one batch.

    The number of the last batch is a property of the table, which the commit of the batch sets: snapshots, which have
    it too, expire.
    """

    def __init__(self, batch: Batch, warehouse: str | None) -> None:
        place = {} if warehouse is None else {"warehouse": _url(warehouse)}
        MetastoreCatalog.__init__(self, NAME, **place)
        schema = batch.options.get("schema")
        self.engine = batch.database.engine.execution_options(schema_translate_map={None: schema})
        self._batch = batch
        self._key = f"tablequeue.batch.{batch.writer}"
        self._schema_version = self._made(schema)

    def _made(self, schema: str | None) -> str:
        """Make the tables of the catalogue, if they are not there. Return the version that they have."""
        for left in reversed(range(TRIES)):
            there = sa.inspect(self.engine)
            with suppress(sa.exc.NoSuchTableError):
                # The last one that `create_tables` makes: until it is there, another stage may be making them.
                there.get_columns(IcebergNamespaceProperties.__tablename__, schema)
                columns = there.get_columns(IcebergTables.__tablename__, schema)
                return "v1" if any(each["name"] == "iceberg_type" for each in columns) else "v0"
            try:
                self.create_tables()
            except sa.exc.DBAPIError:
                # Another stage may make them at the same time.
                if not left:
                    raise
        return "v1"

    def table(self, name: str, schema: pa.Schema, partition_by: Sequence[str]) -> Table:
        """The table, with the columns of a schema."""
        try:
            table = self.load_table(name)
        except NoSuchTableError:
            table = self._new_table(name, schema, partition_by)
        if partition_by:
            check_partitions(f"Iceberg table {name}", partition_by, self.partitions(table))
        try:
            with table.update_schema() as update:
                update.union_by_name(schema)
        except BatchIsThere:
            pass
        except UNFIT as error:
            raise BadInput(
                f"The rows do not fit the Iceberg table {name}: {error}.", "Cast the column, or write to another table."
            ) from error
        return table

    def _new_table(self, name: str, schema: pa.Schema, partition_by: Sequence[str]) -> Table:
        if "warehouse" not in self.properties:
            raise BadInput(f"There is no Iceberg table {name}.", "Name the folder to make it in, as warehouse.")
        # Another stage may make the namespace or the table at the same time.
        with suppress(NamespaceAlreadyExistsError, sa.exc.IntegrityError):
            self.create_namespace(Catalog.namespace_from(name))
        try:
            with (
                suppress(TableAlreadyExistsError, CommitFailedException),
                self.create_table_transaction(name, schema, properties=PROPERTIES) as transaction,
                transaction.update_spec() as spec,
            ):
                for column in partition_by:
                    spec.add_identity(column)
        except UNFIT as error:
            raise BadInput(f"The Iceberg table {name} cannot be made: {error}.", "Cast the column.") from error
        return self.load_table(name)

    def partitions(self, table: Table) -> list[str]:
        """The columns by whose values the table is partitioned. PyIceberg finds those of a file in its statistics."""
        plan = compute_statistics_plan(table.schema(), table.properties)
        for field in table.spec().fields:
            if not isinstance(field.transform, IdentityTransform):
                raise BadInput(
                    f"The Iceberg table {'.'.join(table.name())} is partitioned by {field.transform} of a column.",
                    "Partition it by the values of a column, which the stage may compute.",
                )
            if plan[field.source_id].mode.type not in (MetricModeTypes.FULL, MetricModeTypes.TRUNCATE):
                raise BadInput(
                    f"The Iceberg table {'.'.join(table.name())} keeps no bounds of {field.name}, its partition.",
                    f"Set its property write.metadata.metrics.column.{field.name} to full.",
                )
        return [table.schema().find_column_name(field.source_id) or "" for field in table.spec().fields]

    def has_batch(self, table: Table) -> bool:
        return int(table.properties.get(self._key, -1)) >= self._batch.number

    def add(self, table: Table, paths: list[str]) -> None:
        """Commit the batch with its files. If another run has committed it meanwhile, nothing is added."""
        number = str(self._batch.number)
        with suppress(BatchIsThere), table.transaction() as transaction:
            transaction.set_properties({self._key: number})
            transaction.add_files(
                paths,
                snapshot_properties={"tablequeue.writer": self._batch.writer, "tablequeue.batch": number},
                check_duplicate_files=False,  # it reads all manifests; each file has a name of its own
            )

    def commit_table(
        self, table: Table, requirements: tuple[Any, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        once: Any = Once(self._key, self._batch.number)
        return super().commit_table(table, (*requirements, once), updates)


def _url(folder: str) -> str:
    folder = absolute(folder)
    return f"file://{folder}" if folder.startswith("/") else folder
