"""PostgreSQL by ADBC, which reads Arrow batches by a binary COPY.

Measured with 1,000,000 rows of 100 bytes from two Python workers of Spark on two cores, relative to the rate of Spark's
JDBC in a warm Java: ADBC 0.7 to 0.8; strings that the server builds from all values of a column 0.5 to 0.6, because
they cost the server more than COPY and the client as much as ADBC; psycopg's COPY converted to Arrow less than half of
ADBC. JDBC remains faster because Python is between the server and Java. That takes a quarter of the processor time,
half of it in the driver's COPY.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from weakref import WeakKeyDictionary

import adbc_driver_postgresql
import adbc_driver_postgresql.dbapi as adbc
import psycopg
import pyarrow as pa
import sqlalchemy as sa
from adbc_driver_manager import AdbcConnection, AdbcDatabase
from adbc_driver_postgresql import StatementOptions

# Batches of 1 MB instead of the driver's 16: Spark processes one while the next is read, and each stays in the cache of
# the processor, which alone saves a tenth to a quarter of the time of a read.
_OPTIONS = {StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(1 << 20)}
# The columns whose type on the wire differs from the type of the Arrow column.
_TEXTS = ("payload", "headers", "errors")


# The driver's database object connects once to read the catalogue of types, which takes 45 ms; each further connection
# takes 4 ms. The object itself keeps no connection open.
@lru_cache(maxsize=8)
def _database(url: sa.URL) -> AdbcDatabase:
    return adbc_driver_postgresql.connect(url.render_as_string(hide_password=False))


class _CachedDatabase:
    """Stands for the database: a connection closes its database with itself, but this one is cached."""

    def close(self) -> None: ...


# The connection of each engine that no read has now. To connect takes as long as to read 5,000 messages, for the new
# session of the server has read nothing of the catalogue yet. Disposing of the engine closes it.
_idle: WeakKeyDictionary[sa.Engine, tuple[int, adbc.Connection]] = WeakKeyDictionary()


class Adbc:
    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        connection = _taken(engine)
        self._connection = connection if connection is not None and _answers(connection) else self._connect()
        self._whole = True

    def _connect(self) -> adbc.Connection:
        with _psycopg_errors():
            connection = AdbcConnection(_database(self._engine.url.set(drivername="postgresql")))
            return adbc.Connection(_CachedDatabase(), connection, autocommit=True)

    def read(self, statement: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a statement, with these columns. It has literals, because COPY takes no parameters."""
        names = ", ".join(_selected(field) for field in columns)
        self._whole = False
        with _psycopg_errors(), closing(self._connection.cursor(adbc_stmt_kwargs=_OPTIONS)) as cursor:
            cursor.execute(f"select {names} from ({statement}) as message")  # noqa: S608  (our own texts)
            for batch in cursor.fetch_record_batch():
                arrays = [array.cast(field.type) for array, field in zip(batch.columns, columns, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=columns)
        self._whole = True

    def close(self) -> None:
        """Keep the connection for the next one, unless a read was broken off."""
        if self._whole and self._engine not in _idle:
            if not sa.event.contains(self._engine, "engine_disposed", _close_idle):
                sa.event.listen(self._engine, "engine_disposed", _close_idle)
            _idle[self._engine] = os.getpid(), self._connection
        else:
            self._connection.close()


def _close_idle(engine: sa.Engine) -> None:
    connection = _taken(engine)
    if connection is not None:
        connection.close()


def _taken(engine: sa.Engine) -> adbc.Connection | None:
    """Take the idle connection of an engine. That of a parent stays open: to close it would end the parent's use."""
    process, connection = _idle.pop(engine, (0, None))
    if connection is None or process == os.getpid():
        return connection
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))  # also when this process ends
    return None


def _answers(connection: adbc.Connection) -> bool:
    """Whether the server still has the session. It closes a connection that it has not."""
    try:
        with closing(connection.cursor()) as cursor:
            cursor.execute("select 1")
            cursor.fetchall()
    except adbc.Error:
        with suppress(adbc.Error):
            connection.close()
        return False
    return True


def _selected(field: pa.Field) -> str:
    source = {"group": "group_key", "key": "dedup_key", "offset": "message_offset"}.get(field.name, field.name)
    cast = "::text" if source in _TEXTS and field.type == pa.string() else ""
    return f'{source}{cast} as "{field.name}"'


@contextmanager
def _psycopg_errors() -> Iterator[None]:
    """Raise an error of ADBC as the psycopg error of its SQLSTATE, which the engine translates."""
    try:
        yield
    except adbc.Error as error:
        words = str(error).partition("\n")[0]
        try:
            kind = psycopg.errors.lookup(error.sqlstate or "")
        except KeyError:
            kind = psycopg.OperationalError
        raise kind(words) from None
