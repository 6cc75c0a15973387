"""The file that a SQLite URL names. SQLite creates the file when it opens it, so we check before whether it exists."""

from __future__ import annotations

import os
from urllib.parse import parse_qs, unquote, urlsplit

import sqlalchemy as sa

from tablequeue.engines.connection import Cursor
from tablequeue.engines.sqlite.inherited import file_of
from tablequeue.errors import BadInput, Unreachable

# The modes in which an open creates no file: there is none, or it must exist.
_OTHER_MODES = ("memory", "ro", "rw")


def path_of(sa_engine: sa.Engine) -> str | None:
    """Return the path of the file that a connection creates if it is missing; None if it creates none."""
    creator = getattr(sa_engine.pool, "_creator", None)
    if getattr(creator, "__module__", "") != "sqlalchemy.engine.create":
        return None  # an Engine with its own creator, whose file is not in the URL
    (name,), options = sa_engine.dialect.create_connect_args(sa_engine.url)
    if not options.get("uri") or not name.startswith("file:"):
        return None if name == ":memory:" else name
    parts = urlsplit(name)
    path = unquote(parts.path)
    other = parse_qs(parts.query).get("mode", [""])[-1] in _OTHER_MODES
    return None if other or path in ("", ":memory:") else path


def missing(path: str) -> str | None:
    """Return the absolute path if the file is missing; else None. Raise `Unreachable` if it could not be created."""
    if os.path.exists(path):
        return None
    whole = os.path.abspath(path)
    folder = os.path.dirname(os.path.realpath(whole))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise Unreachable(
            f"The SQLite database cannot be opened: {folder} is no folder that this user may write to.",
            "Check that the folder of the URL's path exists and that this user may write to it.",
        )
    return whole


def refuse_other_file(cursor: Cursor, path: str) -> None:
    """Raise `BadInput` if a caller's connection is to another file, which may have a queue of that name too."""
    file = file_of(cursor)
    if file == path and not os.path.exists(path):
        raise BadInput(
            f"The connection is to {path}, which has been deleted.",
            "Connect again; what is written to a deleted file is gone with the process.",
        )
    if file != path and not (file and os.path.exists(path) and os.path.samefile(file, path)):
        raise BadInput(
            f"The connection is to {file or 'a database in memory'}, the queue is in {path}.",
            "Pass a connection to the database of the queue.",
        )
