"""An Iceberg table as a sink: the executors write the files, and the driver commits their names to the catalogue."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass

from pyspark.sql import DataFrame

from tablequeue.bulk.tables import check_name, need
from tablequeue.spark.pipeline import files
from tablequeue.spark.pipeline.sinks import Batch, Transform


@dataclass(frozen=True, slots=True)
class ToIceberg:
    """Appends each batch to an Iceberg table as one snapshot. Needs the package `tablequeue[iceberg]`.

    table       `namespace.table` in the catalogue `tablequeue`: PyIceberg's SQL catalogue, in the database and the
                schema of the queues. The first batch makes the catalogue, the namespace and the table.
    warehouse   the folder in which a table is made: `warehouse/namespace/table`. A table that is there has its own.

    The table gets the new columns of later rows; columns that rows lack are null. A table that was made by other means
    may be partitioned by the values of columns.

    The driver and all executors must have access to the folder. A batch that is broken off leaves files that no
    snapshot has: docs/pipelines.md shows how to delete them.
    """

    table: str
    warehouse: str | None = None
    partition_by: tuple[str, ...] | list[str] = ()
    transform: Transform | None = None

    def __post_init__(self) -> None:
        need("pyiceberg", "iceberg")
        check_name(self.table)

    @property
    def target(self) -> str:
        return f"Iceberg table {self.table}"

    def write(self, rows: DataFrame, batch: Batch) -> None:
        from tablequeue.bulk.catalogue import BatchIsThere, Catalogue

        schema = files.schema_of(rows, self.partition_by)
        place = batch.database.engine, batch.options.get("schema")
        with closing(Catalogue(*place, batch.writer, batch.number, self.warehouse)) as catalogue:
            table = catalogue.table(self.table, schema, [*self.partition_by])
            if catalogue.last(table) >= batch.number:
                return
            folder = table.location_provider().data_path
            partitions = catalogue.partitions(table)
            written = files.write(rows, folder, batch.prefix, table.schema().as_arrow(), partitions, "iceberg")
            paths = [f"{folder}/{each.name}" for each in written]
            with suppress(BatchIsThere), catalogue.batch(table) as (transaction, summary):
                # Its check of duplicates reads all manifests; each file has a name of its own.
                transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
