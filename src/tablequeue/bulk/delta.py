"""An archive that is a Delta table. Each batch is one version of it, and the number of the batch is in its commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from tablequeue.bulk.folder import busy, check_owner, parsed, text_of, unreadable
from tablequeue.bulk.identity import Identity
from tablequeue.bulk.tables import ARCHIVE, BATCH, Batch, absolute, columns, numbered
from tablequeue.errors import BadInput

WRITER = WriterProperties(compression="ZSTD")


class DeltaArchive:
    """The archive of a queue, for one run.

    Makes the table if it does not exist. Raises `BadInput` for a table or a folder that is no archive of this queue.
    """

    def __init__(self, path: str, owner: Identity, schema: pa.Schema) -> None:
        self.path = absolute(path)
        with _refusals(self.path):
            if not DeltaTable.is_deltatable(self.path):
                self._make(owner, columns(schema))
            self._table = DeltaTable(self.path)
            found = owner_of(self._table, self.path)
        if found is None:
            raise BadInput(f"{self.path} is a Delta table, and no archive.", "Name a new folder.")
        check_owner(found, owner, self.path, f"its property {ARCHIVE}")

    def last(self) -> Batch | None:
        """Return the batch with the highest number. If another program commits after this call, `add` refuses the next
        batch."""
        with _refusals(self.path):
            self._table = table = DeltaTable(self.path)
            number = table.transaction_version(ARCHIVE)
        if number is None:
            return None

        def read() -> pa.Table:
            with _refusals(self.path):
                return table.to_pyarrow_dataset().to_table(filter=ds.field(BATCH) == number)

        return Batch(number, f"Batch {number} of {self.path}", read)

    def add(self, number: int, messages: pa.Table) -> None:
        """Append the next batch. `BadInput` if another program has added one since `last`."""
        once = CommitProperties(app_transactions=[Transaction(ARCHIVE, number)])
        with _refusals(self.path):
            write_deltalake(
                self._table, numbered(messages, number), mode="append", commit_properties=once, writer_properties=WRITER
            )

    def _make(self, owner: Identity, schema: pa.Schema) -> None:
        if Path(self.path).is_dir() and any(not file.name.startswith(".") for file in Path(self.path).iterdir()):
            raise BadInput(
                f"{self.path} has other files, and is no Delta table.", "Name an empty folder, or a new one."
            )
        try:
            DeltaTable.create(self.path, schema, configuration={ARCHIVE: text_of(owner)}, raise_if_key_not_exists=False)
        except DeltaError:
            # Another program may have made it meanwhile.
            if not DeltaTable.is_deltatable(self.path):
                raise


def owner_of(table: DeltaTable, path: Path | str) -> Identity | None:
    """Return the owner of an archive; None if the table is no archive."""
    text = table.metadata().configuration.get(ARCHIVE)
    return None if text is None else parsed(text, f"The property {ARCHIVE} of {path}")


def files_in(lake: Path, owner: Identity) -> list[str]:
    """Return the files of the archives of a queue that are Delta tables in the folders of a lake."""
    found: list[str] = []
    for folder in lake.iterdir():
        if (folder / "_delta_log").is_dir():
            with _refusals(folder):
                table = DeltaTable(folder)
                theirs = owner_of(table, folder)
                if theirs == owner:
                    table.to_pyarrow_dataset()  # refuses what the files alone do not say, such as deleted rows
                    found += table.file_uris()
    return found


@contextmanager
def _refusals(path: Path | str) -> Iterator[None]:
    try:
        yield
    except CommitFailedError:
        raise busy(path) from None
    except DeltaError as error:
        raise unreadable(path, error) from None
