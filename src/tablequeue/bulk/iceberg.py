"""An archive that is an Iceberg table in the catalogue of the database. Each batch is one snapshot of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import pyarrow as pa
import sqlalchemy as sa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import StaticTable, Table

from tablequeue.bulk.catalogue import PROPERTIES, BatchIsThere, Catalogue
from tablequeue.bulk.folder import busy, check_owner, parsed, text_of
from tablequeue.bulk.identity import Identity
from tablequeue.bulk.tables import ARCHIVE, BATCH, Batch, check_name, columns, numbered
from tablequeue.engines.engine import Engine
from tablequeue.errors import ArchiveRefused, BadInput


class IcebergArchive:
    """The archive of a queue, for one run.

    Makes the table if it does not exist. Raises `BadInput` for a table that is no archive of this queue.
    """

    def __init__(
        self, database: sa.Engine, engine: Engine, name: str, warehouse: str | None, owner: Identity, schema: pa.Schema
    ) -> None:
        check_name(name)
        self._engine = engine
        self.path = f"The Iceberg table {name}"
        with self._refusals():
            self._catalogue = Catalogue(database, engine.schema, ARCHIVE, 1, warehouse)
            properties = {**PROPERTIES, ARCHIVE: text_of(owner)}
            self._table = self._catalogue.opened(name, columns(schema), properties=properties)
        found = owner_of(self._table, name)
        if found is None:
            raise BadInput(f"{self.path} is no archive.", "Name a new table.")
        check_owner(found, owner, self.path, f"its property {ARCHIVE}")

    def last(self) -> Batch | None:
        """Return the batch with the highest number."""
        with self._refusals():
            self._table = table = self._table.refresh()
            number = self._catalogue.last(table)
        if number < 0:
            return None

        def read() -> pa.Table:
            return table.scan(row_filter=f"{BATCH} = {number}").to_arrow()

        return Batch(number, f"Batch {number} of {self.path}", read)

    def add(self, number: int, messages: pa.Table) -> None:
        """Append the next batch. `BadInput` if another program has added one since `last`."""
        self._catalogue.number = number
        with self._refusals(), self._catalogue.batch(self._table) as (transaction, summary):
            transaction.append(numbered(messages, number), snapshot_properties=summary)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except (BatchIsThere, CommitFailedException):
            raise busy(self.path) from None
        except sa.exc.DBAPIError as error:
            refusal = self._engine.translate(error.orig) if isinstance(error.orig, Exception) else None
            raise refusal or error from None


def owner_of(table: Table, name: str) -> Identity | None:
    """Return the owner of an archive; None if the table is no archive."""
    text = table.properties.get(ARCHIVE)
    return None if text is None else parsed(text, f"The property {ARCHIVE} of {name}")


def files_of(database: sa.Engine, schema: str | None, owner: Identity) -> list[str]:
    """Return the files of the archives of a queue that are Iceberg tables in the catalogue of the database."""
    found: list[str] = []
    for name, location in Catalogue(database, schema, ARCHIVE, 1).locations().items():
        theirs = _owner_at(location, name)
        if theirs == owner:
            for task in StaticTable.from_metadata(location).scan().plan_files():
                if task.delete_files:
                    raise ArchiveRefused(
                        f"Rows were deleted from {name}, and their files not written again.", "Compact it."
                    )
                found.append(task.file.file_path.removeprefix("file://"))
    return found


# A report looks for the archives of each of its queues, twice. To read the metadata of a table takes 2 ms, and more if
# it has many snapshots.
@lru_cache(maxsize=10_000)
def _owner_at(location: str, name: str) -> Identity | None:
    return owner_of(StaticTable.from_metadata(location), name)
