"""What the tables of a lake have in common, for sinks of pipelines and for archives: Delta's and Iceberg's."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from tablequeue.bulk.folder import unreadable
from tablequeue.errors import BadInput, DriverMissing

BATCH = "batch"
"""The column of an archive that says with which batch a message came."""
ARCHIVE = "tablequeue.archive"
"""The property of a table that says whose archive it is. Also the name under which its batches are counted."""


class Batch(NamedTuple):
    """A batch of an archive, in its table."""

    number: int
    path: str
    read: Callable[[], pa.Table]

    def messages(self, schema: pa.Schema) -> pa.Table:
        """Read the batch back, when it is on the disk. `ArchiveRefused` if it cannot be read as it was written."""
        os.sync()  # the libraries that write tables do not flush them
        try:
            return self.read().select(schema.names).cast(schema)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise unreadable(self.path, error) from None


def columns(schema: pa.Schema) -> pa.Schema:
    """The columns of an archive that is a table."""
    return schema.append(pa.field(BATCH, pa.int64()))


def numbered(messages: pa.Table, number: int) -> pa.Table:
    """The rows of a batch of an archive."""
    return messages.append_column(BATCH, pa.repeat(pa.scalar(number, pa.int64()), len(messages)))


def need(package: str, extra: str) -> None:
    """Raise `DriverMissing` without the package that commits the files of a table."""
    if find_spec(package) is None:
        raise DriverMissing(f"The package {package} is not installed.", f"Run: pip install 'tablequeue[{extra}]'")


def absolute(path: str) -> str:
    """A path of this machine in full, as workers have other folders; a URL of elsewhere as it is."""
    if path.startswith("file:"):
        path = unquote(urlsplit(path).path)
    return path if re.match(r"[A-Za-z][\w+.-]+:", path) else str(Path(path).absolute())


def check_partitions(table: str, given: Sequence[str], there: Sequence[str]) -> None:
    """Raise `BadInput` if a sink gives other partitions than its table has; it may give none."""
    if given and [*given] != [*there]:
        raise BadInput(
            f"The {table} is partitioned by {', '.join(there) or 'nothing'}.",
            "Give partition_by the same columns, or none.",
        )


def check_name(table: str) -> None:
    """Raise `BadInput` for what is not the name of an Iceberg table."""
    if not re.fullmatch(r"\w+(\.\w+)+", table):
        raise BadInput(f"{table!r} is not the name of an Iceberg table.", "Write it as namespace.table.")
