"""PyIceberg's SQL catalogue in the database of the queues. It refuses the commit of a batch that the table has already.

PyIceberg itself takes a URL, and keeps it, with its password, among the properties that it hands to file systems. Here
it gets the connections of the database instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
from pyiceberg.table import CommitTableResponse, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate
from pyiceberg.transforms import IdentityTransform

from tablequeue.bulk.tables import absolute, check_case, check_partitions, has_required
from tablequeue.errors import BadInput

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
    """The catalogue of the tables, for the commits of one writer.

    number   of the batch that is committed next. That of the last batch is a property of the table, which the commit of
             the batch sets: snapshots, which have it too, expire.
    """

    def __init__(
        self, engine: sa.Engine, schema: str | None, writer: str, number: int, warehouse: str | None = None
    ) -> None:
        place = {} if warehouse is None else {"warehouse": _url(warehouse)}
        MetastoreCatalog.__init__(self, NAME, **place)
        self.engine = engine.execution_options(schema_translate_map={None: schema})
        self.number = number
        self._writer = writer
        self._key = f"tablequeue.batch.{writer}"
        self._schema_version = self._made(schema)

    def _made(self, schema: str | None) -> str:
        """Make the tables of the catalogue, if they are not there. Return the version that they have."""
        for left in reversed(range(TRIES)):
            there = sa.inspect(self.engine)
            with suppress(sa.exc.NoSuchTableError):
                # The last table that `create_tables` makes: until it exists, another stage may be making them.
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

    def locations(self) -> dict[str, str]:
        """The names of all tables, and the file of the metadata of each. A commit makes a new file."""
        columns = (IcebergTables.table_namespace, IcebergTables.table_name, IcebergTables.metadata_location)
        with self.engine.connect() as connection:
            found = connection.execute(sa.select(*columns).where(IcebergTables.catalog_name == NAME))
            return {f"{namespace}.{name}": location for namespace, name, location in found if location}

    def opened(
        self, name: str, schema: pa.Schema, partition_by: Sequence[str] = (), properties: Mapping[str, str] = PROPERTIES
    ) -> Table:
        """The table. If it is not there, it is made with this schema, these partitions and properties."""
        try:
            return self.load_table(name)
        except NoSuchTableError:
            return self._new_table(name, schema, partition_by, properties)

    def table(self, name: str, schema: pa.Schema, partition_by: Sequence[str]) -> Table:
        """The table, with the columns of a schema."""
        table = self.opened(name, schema, partition_by)
        if partition_by:
            check_partitions(f"Iceberg table {name}", partition_by, self.partitions(table))
        there = {each.name: each for each in table.schema().as_arrow()}
        check_case(f"Iceberg table {name}", schema.names, [*there])
        for each in there.values():
            if each.name in schema.names and has_required(each.type):
                raise BadInput(
                    f"The column {each.name} of the Iceberg table {name} has parts that may not be null, which this "
                    "sink does not check.",
                    "Write to another table.",
                )
        # Otherwise they would be made columns that may be null.
        schema = pa.schema([each.with_nullable(each.name not in there or there[each.name].nullable) for each in schema])
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

    def _new_table(
        self, name: str, schema: pa.Schema, partition_by: Sequence[str], properties: Mapping[str, str]
    ) -> Table:
        if "warehouse" not in self.properties:
            raise BadInput(f"There is no Iceberg table {name}.", "Name the folder to make it in, as warehouse.")
        # Another stage may make the namespace or the table at the same time.
        with suppress(NamespaceAlreadyExistsError, sa.exc.IntegrityError):
            self.create_namespace(Catalog.namespace_from(name))
        try:
            with (
                suppress(TableAlreadyExistsError, CommitFailedException),
                self.create_table_transaction(name, schema, properties={**properties}) as transaction,
                transaction.update_spec() as spec,
            ):
                for column in partition_by:
                    spec.add_identity(column)
        except UNFIT as error:
            raise BadInput(f"The Iceberg table {name} cannot be made: {error}.", "Cast the column.") from error
        return self.load_table(name)

    def partitions(self, table: Table) -> list[str]:
        """Return the columns by which the table is partitioned. PyIceberg finds the values of a file in its
        statistics."""
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

    def last(self, table: Table) -> int:
        """The number of the last batch that the table has; -1 if it has none."""
        return int(table.properties.get(self._key, -1))

    @contextmanager
    def batch(self, table: Table) -> Iterator[tuple[Transaction, dict[str, str]]]:
        """Commit a batch: what is done in the transaction. Yields the properties of its snapshot too.

        Raises `BatchIsThere` if another run has committed it meanwhile.
        """
        number = str(self.number)
        with table.transaction() as transaction:
            transaction.set_properties({self._key: number})
            yield transaction, {"tablequeue.writer": self._writer, "tablequeue.batch": number}

    def commit_table(
        self, table: Table, requirements: tuple[Any, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        once: Any = Once(self._key, self.number)
        return super().commit_table(table, (*requirements, once), updates)


def _url(folder: str) -> str:
    folder = absolute(folder)
    return f"file://{folder}" if folder.startswith("/") else folder
