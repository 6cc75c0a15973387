"""A table of the user, into which many processes write one batch: they stage its rows, which are then put at once.

Its statements are texts of the folders `user_tables`: no queue has them, so they are no operations of queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.table import Statements
from tablequeue.engines.texts import sql_text, texts_in
from tablequeue.model.names import PART

if TYPE_CHECKING:
    import pyarrow as pa

    from tablequeue.engines.base import EngineBase


class Rows(NamedTuple):
    """The rows of a batch: the table that they go into, their columns, and the columns of the key.

    A row replaces the one that has its key. Without a key, rows are inserted.
    """

    schema: str
    table: str
    columns: Sequence[str]
    key: Sequence[str]


class UserTable(Statements):
    """The table of the user, with the table in which the rows of one write are staged. `write` is its id."""

    def __init__(self, engine: EngineBase, part: UserTables, rows: Rows, write: str) -> None:
        super().__init__(engine)
        self.part, self.rows, self.write = part, rows, write

    @property
    def writes(self) -> str:
        """The table of the writes that are under way."""
        return f"{self.engine.prefix}tq{PART}writes"

    def _texts(self, operation: str, state: str) -> list[str]:
        engine, part, name = self.engine, self.part, self.engine.identifier
        columns, key = [name(each) for each in self.rows.columns], [name(each) for each in self.rows.key]
        changed = [each for each in columns if each not in key] or key
        words = {
            **engine.common_words(),
            "table": "tq",  # the stem of the name of the writers
            "writers": f"{engine.prefix}tq{PART}writers",
            "writes": self.writes,
            "rows": f"{engine.prefix}tq{PART}write_{self.write}",
            "into": f"{name(self.rows.schema)}.{name(self.rows.table)}",
            "columns": ", ".join(columns),
            "values": ", ".join(f":c{number}" for number in range(len(columns))),
            "key": ", ".join(key),
            "sets": ", ".join(part.sets.format(each) for each in changed),
            "same_key": " and ".join(f"there.{each} = given.{each}" for each in key),
            "of_attempts": f"tq_attempt {part.among}",
        }
        own = texts_in(engine.name, "user_tables")
        text = own[operation] if operation in own else sql_text(engine.name, operation)
        return engine.split(engine.filled_in(text, words, self))


class UserTables(Part):
    """How an engine writes into tables of the user. By default with the values that most drivers take."""

    among: ClassVar[str] = "in :attempts"
    """The condition that an attempt is one of those that succeeded."""
    sets: ClassVar[str] = "{0} = excluded.{0}"
    """How a column gets the value of a new row."""
    truths: ClassVar[frozenset[type]] = frozenset({bool, int})
    """What columns that hold truth values are for SQLAlchemy."""
    has_zones: ClassVar[bool] = False
    """Whether times with a zone and times without one have types of their own."""
    holds_nan: ClassVar[bool] = False
    """Whether its numbers may be NaN and infinite."""
    singles: ClassVar[tuple[type, ...]] = ()
    """SQLAlchemy's types of columns that hold floating-point numbers of 32 bits only."""
    digits: ClassVar[int | None] = None
    """The digits of a decimal number that it keeps; None: as many as the column says."""

    refuses_twice: ClassVar[bool] = False
    """Whether its upsert refuses two rows with one key. Then nothing looks for them before."""

    def make_writes(self, cursor: Cursor, table: UserTable) -> None:
        """Make the tables that all writes need, under the creators' lock."""
        self._run(cursor, table, "create_writes", {})

    def make(self, cursor: Cursor, table: UserTable, given: Params) -> None:
        """Make the table of a write."""
        self._run(cursor, table, "create_rows", {**given, "write": table.write})

    def stage(self, cursor: Cursor, table: UserTable, attempt: str, batch: pa.RecordBatch) -> None:
        """Stage the rows of an attempt at a part of the write. Their columns are in the order of the table."""
        names = ["attempt", *(f"c{number}" for number in range(batch.num_columns))]
        columns = (values_of(column).to_pylist() for column in batch.columns)
        rows = [dict(zip(names, (attempt, *row), strict=True)) for row in zip(*columns, strict=True)]
        cursor.executemany(table.statement("stage_rows"), rows)

    def staged(self, cursor: Cursor, table: UserTable, attempts: Any) -> int:
        """Return how many rows the attempts have staged."""
        count: int = self._row(cursor, table, "staged_rows", {"attempts": attempts})[0]
        return count

    def twice(self, cursor: Cursor, table: UserTable, attempts: Any) -> Sequence[Sequence[Any]]:
        """Return up to five keys that more than one of the staged rows has."""
        return self._rows(cursor, table, "keys_twice", {"attempts": attempts})

    def put(self, cursor: Cursor, table: UserTable, attempts: Any, count: int) -> None:
        """Put the staged rows, so many, into the table of the user."""
        self._run(cursor, table, "upsert_rows" if table.rows.key else "insert_rows", {"attempts": attempts})

    def drop(self, cursor: Cursor, table: UserTable) -> None:
        """Drop the table of a write."""
        self._run(cursor, table, "drop_rows", {"write": table.write})

    def left_behind(self, cursor: Cursor, table: UserTable, given: Params) -> list[str]:
        """Return the writes that began a day ago or earlier."""
        return [row[0] for row in self._rows(cursor, table, "old_writes", given)]


def values_of(column: pa.Array) -> pa.Array:
    """Return a column as values that every driver takes: times in UTC and decimal numbers as texts."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us"))
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column
