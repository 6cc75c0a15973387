"""What tables of Delta and of Iceberg have in common, for the sinks of pipelines and for archives."""

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
"""The property of a table that names the queue of the archive. Also the name under which its batches are counted."""


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
    """Return the absolute path of a folder of this machine, because workers have other current folders; a URL as it
    is."""
    if path.startswith("file:"):
        path = unquote(urlsplit(path).path)
    return path if re.match(r"[A-Za-z][\w+.-]+:", path) else str(Path(path).absolute())


def check_partitions(table: str, given: Sequence[str], there: Sequence[str]) -> None:
    """Raise `BadInput` if the partitions of a sink differ from the partitions of its table; a sink may give none."""
    if given and [*given] != [*there]:
        raise BadInput(
            f"The {table} is partitioned by {', '.join(there) or 'nothing'}.",
            "Give partition_by the same columns, or none.",
        )


def check_case(table: str, rows: Sequence[str], there: Sequence[str]) -> None:
    """Raise `BadInput` if the names of two columns differ only in case, which Spark and other programs ignore."""
    names = {name.lower(): name for name in there}
    for name in rows:
        if names.setdefault(name.lower(), name) != name:
            raise BadInput(
                f"The column {name} of the rows and {names[name.lower()]} of the {table} differ only in case.",
                "Give it the same name, or another one.",
            )


def same_key(table: str, batch: int, key: Sequence[str], keys: Sequence[Sequence[object]]) -> BadInput:
    """The error of a batch in which rows have the same key; `keys` are some of these."""
    return BadInput(
        f"Rows of batch {batch} for the {table} have the same {', '.join(key)}: "
        f"{'; '.join(', '.join(map(str, each)) for each in keys)}.",
        "Keep one row of each key, such as the last one; docs/pipelines.md shows how.",
    )


def has_required(kind: pa.DataType) -> bool:
    """Whether a type has a field that may not be null. The keys of a map never count: they are never null."""
    inner = [kind.item_field] if pa.types.is_map(kind) else [kind.field(number) for number in range(kind.num_fields)]
    return any(not each.nullable or has_required(each.type) for each in inner)


def check_name(table: str) -> None:
    """Raise `BadInput` for a text that is not the name of an Iceberg table."""
    if not re.fullmatch(r"\w+(\.\w+)+", table):
        raise BadInput(f"{table!r} is not the name of an Iceberg table.", "Write it as namespace.table.")
