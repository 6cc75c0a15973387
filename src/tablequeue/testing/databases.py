"""A database of its own for each test: a file in memory, or a schema on a server."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.schema import CreateSchema, DropSchema

from tablequeue.database import connect
from tablequeue.errors import BadInput, TablequeueError

# The folder for files in memory on Linux. On other systems it is the folder of temporary files.
MEMORY = Path("/dev/shm")
# Seconds that the end of a test waits for a transaction that the test has left open.
PATIENCE = 5


def _in_schema(url: sa.URL, schema: str) -> sa.URL:
    given = url.query.get("options", ())
    options = [given] if isinstance(given, str) else given
    return url.update_query_dict({"options": " ".join([*options, f"-csearch_path={schema}"])})


def _in_database(url: sa.URL, schema: str) -> sa.URL:
    return url.set(database=schema)


# The URL of a schema with nothing in it, and the query of a URL whose connections wait for locks for PATIENCE seconds.
SCHEMAS: dict[str, tuple[Callable[[sa.URL, str], sa.URL], dict[str, str]]] = {
    "postgresql": (_in_schema, {"options": f"-clock_timeout={PATIENCE}s"}),
    "mysql": (_in_database, {"init_command": f"set lock_wait_timeout={PATIENCE}"}),
    "mariadb": (_in_database, {"init_command": f"set lock_wait_timeout={PATIENCE}"}),
}


@contextmanager
def temporary_database(url: str | sa.URL | None = None) -> Iterator[str]:
    """Make an empty database, return its URL, and delete the database at the end of the block.

    url   the URL of a PostgreSQL, MariaDB or MySQL database: a schema of its own is made there. The returned URL puts
          every table there, also the tables of the application. The user must have the right to make schemas. None, or
          `sqlite://`: a SQLite file, on Linux in memory. A database of SQLite that has no file belongs to one
          connection alone, and an application has several.

    `BadUrl`, as `connect` raises it. `BadInput` if the URL names a file, or a database without schemas of this kind.
    `TablequeueError` at the end of the block if a transaction is still open there. A process that is killed leaves its
    file or its schema, with a name that begins with `tablequeue_test_`.
    """
    try:
        given = sa.make_url(url or "sqlite://")
    except (sa.exc.ArgumentError, ValueError):
        connect(url or "")  # which says what is wrong
        raise
    if given.get_backend_name() == "sqlite":
        if given.database:
            raise BadInput(
                f"The URL for tests names the file {given.database!r}, and each test has a file of its own.",
                "Write sqlite://, or leave the URL out.",
            )
        with _file() as path:
            yield f"{given.drivername}:///{path}"
        return
    if given.get_backend_name() not in SCHEMAS:
        raise BadInput(
            f"There are no temporary databases on {given.get_backend_name()}.",
            "Give the URL of a PostgreSQL, MariaDB or MySQL database, or leave it out for SQLite.",
        )
    name = f"tablequeue_test_{secrets.token_hex(8)}"
    inside, patient = SCHEMAS[given.get_backend_name()]
    with connect(given.update_query_dict(patient)) as server:
        engine = server.engine
        try:
            with engine.begin() as connection:
                connection.execute(CreateSchema(name))
            try:
                yield inside(given, name).render_as_string(hide_password=False)
            finally:
                _drop(engine, name)
        finally:
            engine.dispose()


@contextmanager
def _file() -> Iterator[Path]:
    memory = MEMORY if os.access(MEMORY, os.W_OK | os.X_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="tablequeue_test_", dir=memory))
    try:
        yield folder / "queues.db"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _drop(engine: sa.Engine, name: str) -> None:
    try:
        with engine.begin() as connection:
            connection.execute(DropSchema(name, cascade=engine.dialect.name == "postgresql"))
    except sa.exc.OperationalError as error:
        raise TablequeueError(
            f"The schema {name!r} of a test cannot be dropped: {str(error.orig).strip().rstrip('.')}.",
            "End the transactions that the test has left open, and drop the schema.",
        ) from error
