"""The operations of bulk writes from many processes: messages are staged, then published together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.operation import Effect, by_text, exists, none, only, operation, strings
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.table import Statements, Table


class Staging(Part):
    by_columns = False
    """Whether `stage` takes messages by columns, as an Arrow batch, and checks JSON by itself."""

    @operation(Effect.STEP, others="topic_stage_reserve topic_stage_copied topic_stage_copy")
    def stage(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Stage each of `params["rows"]`, which have options of their own; or `params["columns"]`, if `by_columns`."""
        shared = {name: value for name, value in params.items() if name != "rows"}
        cursor.executemany(table.statement("stage"), [shared | row for row in params["rows"]])

    staged_count = by_text(Effect.READ, only(int))
    staged_taken = by_text(Effect.READ, strings)
    """Return the keys, among those staged by `write`, that cannot be pushed."""
    writer_advance = by_text(Effect.STEP, exists, of=Statements)
    """Advance `writer` to `batch`. Return whether that batch is new."""
    writer_last = by_text(Effect.READ, only(int), of=Statements)
    """Return the number of the last batch of `writer`, which has one."""
    unstage = by_text(Effect.STEP, none, texts={"unstage": ""}, others="topic_unstage")

    @operation(Effect.STEP, {"publish": "queue", "publish_topic": "topic"}, "publish_keyed")
    def publish(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Push what `attempts` staged. Return the number of messages. `keyed` tells whether any may have a key."""
        self._run(cursor, table, self._published_by(table, params), params)
        return cursor.rowcount

    def _published_by(self, table: Table, params: Params) -> str:
        """Return the name of the text that publishes into this table."""
        return "publish_topic" if table.definition.kind == "topic" else "publish"

    def dump_words(self, words: Sequence[str]) -> Any:
        """Return a list of short texts as one parameter."""
        return list(words)
