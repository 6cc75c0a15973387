"""The folder of an archive: Parquet files, numbered from 1, which programs add one at a time.

_archive-DATABASE-TABLE     empty: its name says which messages these are, by the identity of the database
messages-00000001.parquet   and so on: the messages
_lock                       empty, held by the program that writes

Programs that read all files of a folder, such as polars, pass over empty ones. A file gets its name when all of it is
on the disk, and never changes after that. A crash leaves a hidden file at most, which no program but polars reads, and
the next archive deletes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq

from tablequeue.bulk.identity import Identity
from tablequeue.errors import ArchiveRefused, BadInput

VERSION = 1
MOVE_AWAY = "Restore it from a copy, or move it away: the next archive writes again what is still in the history."
# The file that makes a folder an archive.
_OWNER = re.compile(r"_archive-([0-9a-f]+)-(.+)")
_FILE = re.compile(r"messages-(\d{8,})\.parquet")


class File(NamedTuple):
    number: int
    path: Path

    def messages(self, schema: pa.Schema) -> pa.Table:
        """Read the file. `ArchiveRefused` if it cannot be read as it was written."""
        try:
            with self.path.open("rb") as opened:
                return pq.ParquetFile(opened, page_checksum_verification=True).read()
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.path, error) from None


def owner_of(folder: Path) -> Identity | None:
    """Return the owner of an archive; None if the folder is no archive. `BadInput` if it has two owners."""
    found = [match for each in folder.iterdir() if (match := _OWNER.fullmatch(each.name))] if folder.is_dir() else []
    if len(found) > 1:
        raise BadInput(
            f"{folder} is the archive of two queues: {' and '.join(sorted(each[0] for each in found))}.",
            "Delete the file that is wrong.",
        )
    return Identity(found[0][1], unquote(found[0][2])) if found else None


def text_of(owner: Identity) -> str:
    """Return the text that the property of a table has for an owner."""
    return json.dumps({"version": VERSION, **owner._asdict()}, indent=2)


def parsed(text: str, place: Path | str) -> Identity:
    """Return the owner from a text of `text_of`; `BadInput` for any other text."""
    try:
        values = json.loads(text)
        if values.pop("version") == VERSION:
            return Identity(**values)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{place} cannot be read.", "Restore it, or name another place.") from None
    raise BadInput(f"{place} was made by another version of tablequeue.", "Name another place.")


def check_owner(found: Identity, owner: Identity, place: Path | str, said_in: str) -> None:
    """Refuse the archive of another queue or database."""
    if found != owner:
        raise BadInput(
            f"{place} has the messages of the table {found.table} of the database with the identity {found.database}, "
            f"not the messages of the table {owner.table} of the database {owner.database}.",
            f"Name another place; if the database was declared a copy by mistake, correct {said_in}.",
        )


def files_in(lake: Path, owner: Identity) -> list[Path]:
    """Return the files of the archives of a queue in the folders of a lake."""
    found = ((folder, owner_of(folder)) for folder in lake.iterdir())
    return [
        path for folder, theirs in found if theirs == owner for path in folder.iterdir() if _FILE.fullmatch(path.name)
    ]


@contextmanager
def opened(path: Path, owner: Identity) -> Iterator[Folder]:
    """Open the archive in a folder for this process alone, or make it.

    Raises `BadInput` for the archive of another queue or database, for a folder with other files, and for one that
    another archive is being written to; OSError if it cannot be written to.
    """
    _make(path)
    if owner_of(path) is None and any(not file.name.startswith(("_", ".")) for file in path.iterdir()):
        raise BadInput(f"{path} has other files, and is no archive.", "Name an empty folder, or a new one.")
    with (path / "_lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released by the system, however this process ends
        except BlockingIOError:
            raise busy(path) from None
        found = owner_of(path)
        if found is None:
            (path / f"_archive-{owner.database}-{quote(owner.table, safe='')}").touch()
            _sync(path)
        else:
            check_owner(found, owner, path, "the name of its file _archive-...")
        for left in path.glob(".*.new"):
            left.unlink(missing_ok=True)
        yield Folder(path)


class Folder:
    """The files of an archive that is open."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def last(self) -> File | None:
        """Return the file with the highest number."""
        found = ((_FILE.fullmatch(path.name), path) for path in self.path.iterdir())
        return max((File(int(match[1]), path) for match, path in found if match), default=None)

    def add(self, number: int, table: pa.Table) -> None:
        """Write a file under this number, on the disk. A crash leaves no such file, or all of it.

        `BadInput` if another program has written one.
        """
        path = self.path / f"messages-{number:08}.parquet"

        def write(file: IO[bytes]) -> None:
            pq.write_table(table, file, compression="zstd", write_page_checksum=True)

        _publish(path, write)


def unreadable(place: Path | str, error: Exception) -> ArchiveRefused:
    return ArchiveRefused(
        f"{place} cannot be read: {str(error).partition(chr(10))[0]}.", f"Nothing was deleted. {MOVE_AWAY}"
    )


def busy(path: Path | str) -> BadInput:
    return BadInput(f"Another archive is being written to {path}.", "Wait until it has finished.")


def _publish(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file so that it is on the disk, and is complete from the moment at which it exists.

    `BadInput` if it exists already: a link never replaces a file, but a rename does.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        with fresh.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)
        except (FileExistsError, FileNotFoundError):  # on a disk whose locks do not reach the other machine
            raise busy(path.parent) from None
    finally:
        fresh.unlink(missing_ok=True)
    _sync(path.parent)


def _make(folder: Path) -> None:
    """Make a folder and its missing parents, so that they are on the disk."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    """Write the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
