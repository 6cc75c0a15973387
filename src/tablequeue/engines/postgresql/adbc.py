"""PostgreSQL by ADBC, which reads Arrow batches by a binary COPY.

Measured with 1,000,000 rows of 100 bytes from two Python workers of Spark on two cores, relative to the rate of Spark's
JDBC in a warm Java: ADBC 0.7 to 0.8; strings that the server builds from all values of a column 0.5 to 0.6, because
they cost the server more than COPY and the client as much as ADBC; psycopg's COPY converted to Arrow less than half of
ADBC. JDBC remains faster because Python is between the server and Java. That takes a quarter of the processor time,
half of it in the driver's COPY.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache

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


class Adbc:
    def __init__(self, url: sa.URL) -> None:
        with _psycopg_errors():
            connection = AdbcConnection(_database(url.set(drivername="postgresql")))
            self._connection = adbc.Connection(_CachedDatabase(), connection, autocommit=True)

    def read(self, statement: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a statement, with these columns. It has literals, because COPY takes no parameters."""
        names = ", ".join(_selected(field) for field in columns)
        with _psycopg_errors(), closing(self._connection.cursor(adbc_stmt_kwargs=_OPTIONS)) as cursor:
            cursor.execute(f"select {names} from ({statement}) as message")  # noqa: S608  (our own texts)
            for batch in cursor.fetch_record_batch():
                arrays = [array.cast(field.type) for array, field in zip(batch.columns, columns, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=columns)

    def close(self) -> None:
        self._connection.close()


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
