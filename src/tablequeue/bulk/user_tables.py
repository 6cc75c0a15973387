"""Writes of many processes into a table of the user: all rows of a batch are inserted at once, or none.

This module never makes or changes the table. Before the first batch of a run, it reads the columns of the table and
compares them with the rows by name and type. If the table changes later, the database refuses what does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from tablequeue.bulk.arrow import TIME
from tablequeue.bulk.staging import check_staged, is_new, pieces
from tablequeue.bulk.tables import same_key
from tablequeue.database import Database
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.runner import Runner
from tablequeue.engines.user_tables import Rows, UserTable, UserTables
from tablequeue.errors import (
    BadInput,
    DatabaseError,
    QueueDiffers,
    QueueNotFound,
    TablequeueError,
)
from tablequeue.verbs.context import Params
from tablequeue.verbs.push import check_text

T = TypeVar("T")

# The types of Python for columns that are not written as text.
_NO_TEXT = frozenset({int, float, Decimal, bool, bytes, date, datetime, time, timedelta})
# The most characters of the database's own text in an error.
LONGEST = 400


@dataclass(frozen=True, slots=True)
class Write:
    """A write of one batch. Can be sent to the processes that stage its rows.

    schema     the columns of the rows, in the order of `rows`.
    required   the columns that may not be null.
    id         a hexadecimal id; empty before `writing`.
    """

    rows: Rows
    schema: pa.Schema
    required: frozenset[str]
    id: str

    @property
    def target(self) -> str:
        """The table, as people name it."""
        return f"{self.rows.schema}.{self.rows.table}"


def compare(
    database: Database, table: str, schema: str | None, key: Sequence[str], given: pa.Schema, words: Mapping[str, str]
) -> Write:
    """Compare the columns of rows with the table, for writes of such rows.

    schema   the schema of the table; None: the schema of the connection.
    key      the columns by which a row replaces an existing row; none: rows are inserted.
    given    the columns of the rows. A nested value is stored, as JSON, in a column of JSON or of text.
    words    the types of the rows' columns, as errors name them.

    `BadInput` for the first thing that does not fit, and `BadName` for names that cannot be written in SQL.
    """
    runner, part = _engine_of(database)
    try:
        found = sa.inspect(database.engine)
        place = schema or found.default_schema_name or ""
        columns: dict[str, Any] = {each["name"]: each for each in found.get_columns(table, place)}
        unique: list[Sequence[str | None]] = [found.get_pk_constraint(table, place)["constrained_columns"]]
        unique += [each["column_names"] for each in found.get_unique_constraints(table, place)]
        unique += [
            each["column_names"]
            for each in found.get_indexes(table, place)
            if each["unique"] and not any(name.endswith("_where") for name in each.get("dialect_options", ()))
        ]
    except sa.exc.NoSuchTableError:
        raise BadInput(
            f"There is no table {table} in the schema {place}.",
            "Make it by your own migrations; if it is in another schema, name that: ToTable(..., schema=...).",
        ) from None
    except sa.exc.DBAPIError as error:
        raise (runner.engine.translate(error.orig) if isinstance(error.orig, Exception) else None) or error from error
    name_of_table = f"{place}.{table}"
    for name in given.names:
        if given.names.count(name) > 1:
            raise BadInput(f"The rows have two columns {name}.", "Leave one out, or rename it.")
        if name not in columns:
            raise BadInput(
                f"The table {name_of_table} has no column {name}.",
                f"Leave it out, or add it by your own migrations; columns are: {', '.join(columns)}.",
            )
        if "computed" in columns[name] or (columns[name].get("identity") or {}).get("always"):
            raise BadInput(
                f"The column {name} of the table {name_of_table} always gets its value from the database.",
                "Leave it out of the rows.",
            )
        kind: Any = columns[name]["type"]
        if not _fits(given.field(name).type, kind, part):
            raise BadInput(
                f"The column {name} is a {words[name]}, and in the table {name_of_table} it is {kind!r}.",
                "Cast it in the stage; docs/pipelines.md says which types fit.",
            )
    required = {
        name
        for name, each in columns.items()
        if not each["nullable"] and "computed" not in each and "identity" not in each
    }
    for name in sorted(required - {*given.names}):
        numbered = columns[name].get("autoincrement") is True or columns[name].get("primary_key") == 1  # of SQLite
        if columns[name]["default"] is None and not numbered:
            raise BadInput(
                f"The column {name} of the table {name_of_table} may not be null and has no default, and the rows "
                "lack it.",
                "Add it to the rows, or give it a default by your own migrations.",
            )
    for name in key:
        if name not in given.names:
            raise BadInput(f"The column {name} of the key is not in the rows.", "Add it.")
    if key and all({*key} != {*each} for each in unique):
        raise BadInput(
            f"The table {name_of_table} has no unique index of exactly {', '.join(key)}.",
            "Add one by your own migrations, or name the columns of one as key.",
        )
    return Write(Rows(place, table, tuple(given.names), tuple(key)), _staged(given), frozenset(required | {*key}), "")


@contextmanager
def writing(database: Database, compared: Write) -> Iterator[Write]:
    """Begin a write of rows that were compared with their table. At the end of the block, drop the staged rows.

    A crash in the block leaves a table of staged rows, which a write drops a day later.
    """
    write = replace(compared, id=uuid4().hex)

    def make(engine: Engine, cursor: Cursor, table: UserTable, params: Params) -> list[str]:
        if not engine.catalogue.has_table(cursor, engine.shared, {"table": table.writes}):
            engine.catalogue.lock(cursor, engine.shared, params)
            table.part.make_writes(cursor, table)
        left_behind = table.part.left_behind(cursor, table, params)
        table.part.make(cursor, table, params)
        return left_behind

    for each in _run(database, write, make):
        _drop(database, replace(write, id=each))
    try:
        yield write
    finally:
        _drop(database, write)


def stage(database: Database, write: Write, attempt: str, batches: Iterable[pa.RecordBatch]) -> int:
    """Stage rows under the name of an attempt at a part of the write, and return how many.

    `BadInput` for a null in a column that may not be null, and for NaN where the database has none; `DatabaseError` for
    another value that does not fit its column.
    """
    part = _engine_of(database)[1]
    total = 0
    for batch in batches:
        for piece in pieces(batch):
            columns = [piece[name].cast(write.schema.field(name).type) for name in write.rows.columns]
            for name, column in zip(write.rows.columns, columns, strict=True):
                _check_values(write, part, name, column)
            checked = pa.RecordBatch.from_arrays(columns, write.schema.names)

            def add(_: Engine, cursor: Cursor, table: UserTable, __: Params, rows: pa.RecordBatch = checked) -> None:
                part.stage(cursor, table, attempt, rows)

            with _refusals(write, "a row"):
                _run(database, write, add)
            total += piece.num_rows
    return total


def put(database: Database, write: Write, staged: Mapping[str, int], writer: str, batch: int) -> bool:
    """Insert the rows that these attempts staged into the table, and note the number of the batch, in one transaction.

    staged   the attempts that succeeded, and how many rows each has staged.
    writer   the name under which the writes are numbered: a write with the last number inserts nothing. Returns whether
             the batch was new.

    `BadInput` for a number before the last one, and if two rows have one key; `DatabaseError` with the text of the
    database if a constraint or a trigger refuses a row. Then nothing was inserted.
    """
    count = sum(staged.values())
    check_text(writer, "writer")
    runner, part = _engine_of(database)
    attempts = runner.engine.staging.dump_words([*staged] or [""])

    def all_at_once(engine: Engine, cursor: Cursor, table: UserTable, params: Params) -> bool:
        if not is_new(engine, cursor, table, params, write.target):
            return False
        check_staged(part.staged(cursor, table, attempts), count, "rows")
        if not part.refuses_twice:
            refuse_twice(engine, cursor, table, params)
        part.put(cursor, table, attempts, count)
        return True

    def refuse_twice(_: Engine, cursor: Cursor, table: UserTable, __: Params) -> None:
        if table.rows.key and (twice := part.twice(cursor, table, attempts)):
            raise same_key(f"table {write.target}", batch, table.rows.key, twice)

    try:
        with _refusals(write, f"batch {batch} of {writer}"):
            return _run(database, write, all_at_once, writer=writer, batch=batch)
    except DatabaseError:
        if part.refuses_twice:
            with suppress(DatabaseError):
                _run(database, write, refuse_twice)  # which names the keys, if they are the cause
        raise


# -- private -----------------------------------------------------------------------------------------------------------


def _engine_of(database: Database) -> tuple[Runner, UserTables]:
    runner = database._runner  # noqa: SLF001  (a write is of a database, not of a queue: `ext` has no way to it)
    if runner.engine.user_tables is None:
        raise BadInput(
            f"tablequeue does not write into tables of {runner.engine.name}.",
            "Write into a queue, and let a worker write the rows; or use ForeachBatch with Spark's JDBC.",
        )
    return runner, runner.engine.user_tables


def _run(database: Database, write: Write, work: Callable[[Engine, Cursor, UserTable, Params], T], **given: Any) -> T:
    """Work in a transaction, with these parameters."""
    runner, part = _engine_of(database)
    opened = UserTable(runner.engine, part, write.rows, write.id)

    def run(cursor: Cursor, table: UserTable, params: Params) -> T:
        return work(runner.engine, cursor, table, params)

    params: Any = {"now": None, **given}
    return runner.run(run, opened, params)


def _drop(database: Database, write: Write) -> None:
    """Drop the staged rows, unless the database refuses: that is no reason to fail, and a later write tries again."""
    with suppress(TablequeueError):
        _run(database, write, lambda engine, cursor, table, params: table.part.drop(cursor, table))


@contextmanager
def _refusals(write: Write, what: str) -> Iterator[None]:
    """Add to an error of the database which table refused which rows. The text of the database names the constraint and
    the value."""
    try:
        yield
    except (BadInput, DatabaseError, QueueDiffers, QueueNotFound) as error:
        if error.__cause__ is None:  # an error of tablequeue
            raise
        words = " ".join(str(error.__cause__).split())[:LONGEST].rstrip(".")
        raise DatabaseError(
            f"The table {write.target} did not take {what}: {words}.",
            "Correct the rows or the table, and write the batch again: nothing of it was written.",
        ) from error


def _check_values(write: Write, part: UserTables, name: str, column: pa.Array) -> None:
    if column.null_count and name in write.required:
        raise BadInput(
            f"The column {name} of the table {write.target} may not be null, and a row has null.",
            "Fill it, or leave out the row.",
        )
    if (
        pa.types.is_floating(column.type)
        and not part.holds_nan
        and not pc.all(pc.is_finite(column), min_count=0).as_py()
    ):
        raise BadInput(
            f"The column {name} has NaN or infinity, which the database cannot hold.", "Make it null in the stage."
        )


def _staged(given: pa.Schema) -> pa.Schema:
    """Return the columns as they are staged: times in UTC, and nested values as JSON."""
    return pa.schema(
        [
            each.with_type(
                pa.string() if pa.types.is_nested(each.type) else TIME if _has_zone(each.type) else each.type
            )
            for each in given
        ]
    )


def _has_zone(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _fits(given: pa.DataType, kind: sa.types.TypeEngine[Any], part: UserTables) -> bool:
    """Whether each value of a type fits a column, except for its size, which the database checks."""
    try:
        holds = dict if isinstance(kind, sa.JSON) else float if isinstance(kind, sa.Float) else kind.python_type
    except NotImplementedError:
        holds = None  # a type of the database that SQLAlchemy does not know
    t = pa.types
    if t.is_string(given):
        return holds not in _NO_TEXT
    if t.is_nested(given):
        return holds in (dict, str, None)
    if holds is None:
        return False
    if t.is_boolean(given):
        return holds in part.truths
    if t.is_integer(given):
        return holds in (int, Decimal)
    if t.is_decimal(given):
        if holds is int:
            return given.scale == 0
        scale = getattr(kind, "scale", None)
        fine = (scale is None or given.scale <= scale) and (part.digits is None or given.precision <= part.digits)
        return holds is Decimal and fine
    if t.is_floating(given):
        return holds is float and (t.is_float32(given) or not isinstance(kind, part.singles))
    if t.is_timestamp(given):
        zoned = bool(getattr(kind, "timezone", False))
        return holds is datetime and (not part.has_zones or zoned is _has_zone(given))
    return (t.is_date(given) and holds is date) or (t.is_binary(given) and holds is bytes)
