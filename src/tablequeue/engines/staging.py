"""The operations of bulk writes from many processes: messages are staged, then published together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.table import Statements, Table


class Staging(Part):
    by_columns = False
    """Whether `stage` takes messages by columns, as an Arrow batch, and checks JSON by itself."""

    def stage(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Stage each of `params["rows"]`, which have options of their own; or `params["columns"]`, if `by_columns`."""
        shared = {name: value for name, value in params.items() if name != "rows"}
        cursor.executemany(table.statement("stage"), [shared | row for row in params["rows"]])

    def staged_count(self, cursor: Cursor, table: Table, params: Params) -> int:
        return self._rows(cursor, table, "staged_count", params)[0][0]

    def staged_taken(self, cursor: Cursor, table: Table, params: Params) -> list[str]:
        """Return the keys, among those staged by `write`, that cannot be pushed."""
        return [row[0] for row in self._rows(cursor, table, "staged_taken", params)]

    def writer_advance(self, cursor: Cursor, table: Statements, params: Params) -> bool:
        """Advance `writer` to `batch`. Return whether that batch is new."""
        return bool(self._rows(cursor, table, "writer_advance", params))

    def writer_last(self, cursor: Cursor, table: Statements, params: Params) -> int:
        """Return the number of the last batch of `writer`, which has one."""
        return self._rows(cursor, table, "writer_last", params)[0][0]

    def publish(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Push what `attempts` staged. Return the number of messages. `keyed` tells whether any may have a key."""
        self._run(cursor, table, self._published_by(table, params), params)
        return cursor.rowcount

    def _published_by(self, table: Table, params: Params) -> str:
        """Return the name of the text that publishes into this table."""
        return "publish_topic" if table.definition.kind == "topic" else "publish"

    def unstage(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._run(cursor, table, "unstage", params)

    def dump_words(self, words: Sequence[str]) -> Any:
        """Return a list of short texts as one parameter."""
        return list(words)
