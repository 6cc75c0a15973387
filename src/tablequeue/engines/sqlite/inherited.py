"""Databases that a forked process must not use, because a connection to them was open at the fork.

The child does not inherit file locks, but it inherits SQLite's count, in memory, of the locks that the process holds on
each file. So a connection in the child takes no lock where its parent had one. Then another process sees no lock, takes
itself for the last one, and removes the -wal file, and the child's writes are lost; or two processes write at once, and
an index breaks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tablequeue.engines.connection import Cursor
from tablequeue.errors import ForkUnsafe

Inode = tuple[int, int]

_opened: set[str] = set()
_inherited: set[Inode] = set()


def note(path: str) -> None:
    """Record that this process opens that database."""
    _opened.add(path)


def refuse_inherited(cursor: Cursor) -> None:
    """Raise `ForkUnsafe` if the database of this cursor was in use when this process was forked."""
    if _inherited:
        refuse(file_of(cursor))


def refuse(path: str) -> None:
    if _inherited and inode_of(path) in _inherited:
        raise ForkUnsafe(
            f"This process was forked while a connection to the SQLite database {path} was in use.",
            "Fork it before the database is used, or when no thread and no transaction uses it; or start it by the "
            "methods spawn or forkserver of multiprocessing.",
        )


def file_of(cursor: Cursor) -> str:
    """Return the path of a database; "" if it is in memory."""
    cursor.execute("pragma database_list")
    path: str = next(file for _, name, file in cursor.fetchall() if name == "main")  # an async cursor does not iterate
    return path


def inode_of(path: str | int) -> Inode | None:
    """Return what tells a file from all others, whatever its name; None if it is gone."""
    try:
        found = os.stat(path)  # noqa: PTH116 (it may be a descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _look() -> None:
    if not _opened:
        return
    with suppress(OSError):  # a system without this folder
        open_files = {inode_of(int(file.name)) for file in Path("/dev/fd").iterdir()}
        _inherited.update(inode for path in _opened if (inode := inode_of(path)) is not None and inode in open_files)


os.register_at_fork(after_in_child=_look)
