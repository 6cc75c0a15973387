"""What an engine must supply besides, for streams, and for writes that many processes make as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import sqlalchemy as sa

from tablequeue.engines.base import Cursor, Engine, Params, Table
from tablequeue.engines.texts import Row
from tablequeue.names import PART


class StreamRow(NamedTuple):
    """What is known of a stream, as stream_lock selects it."""

    epoch: int
    batch: int
    completed: int
    token: str | None
    failures: str


class StreamingEngine(Engine):
    """An engine whose queues Spark can stream from and write to."""

    staged_types: ClassVar[Mapping[str, str]]
    """The column type of each payload type where it is staged."""
    stages_columns: ClassVar[bool] = False
    """Whether `stage` takes messages by columns, and checks JSON by itself."""

    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        words = super().words(table, state)
        definition = table.definition
        return {
            **words,
            "streams": f"{words['queue']}{PART}streams",
            "staged": f"{words['queue']}{PART}staged",
            "writers": f"{words['queue']}{PART}writers",
            "staged_type": self.staged_types[definition.payload],
            "default_due": self.clock if definition.order == "due" else "null",
        }

    def drop(self, cursor: Cursor, table: Table, params: Params) -> None:
        super().drop(cursor, table, params)
        self._run(cursor, table, "drop_streams", params)

    # -- looking at what is there ----------------------------------------------------------------------------------

    def live(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Up to `n` live messages with ids from `low` to `high`, highest id first. Rows of COLUMNS."""
        return self._rows(cursor, table, "live", params)

    def live_bounds(self, cursor: Cursor, table: Table, params: Params) -> Row:
        return self._rows(cursor, table, "live_bounds", params)[0]

    def finished(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Up to `n` messages with ids from `low` to `high` that were finished in a time, highest id first."""
        return self._rows(cursor, table, "finished", params)

    def finished_bounds(self, cursor: Cursor, table: Table, params: Params) -> Row:
        return self._rows(cursor, table, "finished_bounds", params)[0]

    def literal(self, cursor: Cursor, table: Table, params: Params) -> str:
        """The text of `params["operation"]` with the values in it, for a connection that `arrow` made."""
        raise NotImplementedError

    def arrow(self, url: sa.URL) -> Any:
        """A connection that reads Arrow batches by itself; None if there is no driver for it."""
        return None

    # -- streams ---------------------------------------------------------------------------------------------------

    def create_streams(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Make the table of the streams, if it is not there."""
        self._make(cursor, table, "create_streams", params, "streams")

    def stream_open(self, cursor: Cursor, table: Table, params: Params) -> None:
        """A new run of `stream`, with an epoch of its own."""
        self._run(cursor, table, "stream_open", params)

    def stream_lock(self, cursor: Cursor, table: Table, params: Params) -> StreamRow | None:
        row = self._fetch(cursor, table, "stream_lock", params, cursor.fetchone)
        return row and StreamRow(*row)

    def stream_set(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._run(cursor, table, "stream_set", params)

    def stream_claim(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Claim up to `n` messages without a lease; how many."""
        # No low-water mark: what it saves is little beside a batch.
        return len(self._rows(cursor, table, "stream_claim", params | {"low_water": 0}))

    def stream_ids(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """The ids of the messages in progress under the `token` of a stream, in their order."""
        return [row[0] for row in self._rows(cursor, table, "stream_ids", params)]

    def stream_rows(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Those of `ids` that are in progress under `token`. Rows of COLUMNS."""
        return self._rows(cursor, table, "stream_rows", params)

    def streams(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Rows of (stream, epoch, batch, completed, token, claimed_at, messages in progress)."""
        return self._rows(cursor, table, "streams", params)

    # -- writes of many processes ----------------------------------------------------------------------------------

    def create_staged(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Make the tables that bulk writes go through, if they are not there."""
        self._make(cursor, table, "create_staged", params, "staged", "writers")

    def stage(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Stage each of `params["rows"]`, parameters of their own; or lists of values, each named as one of a row."""
        shared = {name: value for name, value in params.items() if name != "rows"}
        cursor.executemany(table.statement("stage"), [shared | row for row in params["rows"]])

    def staged_count(self, cursor: Cursor, table: Table, params: Params) -> int:
        return self._rows(cursor, table, "staged_count", params)[0][0]

    def staged_taken(self, cursor: Cursor, table: Table, params: Params) -> list[str]:
        """Keys, among those staged by `write`, that cannot be pushed."""
        return [row[0] for row in self._rows(cursor, table, "staged_taken", params)]

    def writer_advance(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Whether `batch` is a new one of `writer`."""
        return bool(self._rows(cursor, table, "writer_advance", params))

    def publish(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Push what `attempts` staged; how many messages. `keyed` if any may have a key."""
        self._run(cursor, table, "publish", params)
        return cursor.rowcount

    def unstage(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._run(cursor, table, "unstage", params)

    # -- values ----------------------------------------------------------------------------------------------------

    def dump_words(self, words: Sequence[str]) -> Any:
        """A list of short texts as one parameter."""
        return list(words)
