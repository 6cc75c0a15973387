"""Databases that a forked process must not use: a connection to them was open when it was forked.

The locks of a file do not go to the child, but SQLite counts in memory, for each file, those that the process has. So a
connection that the child opens takes no lock where its parent had one. What it writes is lost when somebody else, who
sees no lock, takes the last reader to be gone and removes the -wal file; or two write at once, and an index breaks.
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
    """This process opens that database."""
    _opened.add(path)


def refuse_inherited(cursor: Cursor) -> None:
    """`ForkUnsafe` if the database of this cursor was in use when this process was forked."""
    if _inherited:
        refuse(file_of(cursor))


def refuse(path: str) -> None:
    if _inherited and _inode(path) in _inherited:
        raise ForkUnsafe(
            f"This process was forked while a connection to the SQLite database {path} was in use.",
            "Fork it before the database is used, or when no thread and no transaction uses it; or start it by the "
            "methods spawn or forkserver of multiprocessing.",
        )


def file_of(cursor: Cursor) -> str:
    """The file of a database; "" if it is in memory."""
    path: str = next(file for _, name, file in cursor.execute("pragma database_list") if name == "main")
    return path


def _inode(path: str | int) -> Inode | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (a descriptor too)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _look() -> None:
    if not _opened:
        return
    with suppress(OSError):  # a system without this folder
        open_files = {_inode(int(file.name)) for file in Path("/dev/fd").iterdir()}
        _inherited.update(inode for path in _opened if (inode := _inode(path)) is not None and inode in open_files)


os.register_at_fork(after_in_child=_look)
