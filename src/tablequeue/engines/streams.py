"""The operations of streams: batches of messages that can be read again until they are complete."""

from __future__ import annotations

from typing import ClassVar

from tablequeue.engines.connection import Cursor
from tablequeue.engines.fair import Fair
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import StreamRow, StreamsRow
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row


class Streams(Part):
    fair: ClassVar[Fair] = Fair()

    def stream_open(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Begin a new run of `stream`, with an epoch of its own."""
        self._run(cursor, table, "stream_open", params)

    def stream_lock(self, cursor: Cursor, table: Table, params: Params) -> StreamRow | None:
        row = self._row(cursor, table, "stream_lock", params)
        return row and StreamRow(*row)

    def stream_set(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._run(cursor, table, "stream_set", params)

    def stream_claim(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Claim up to `n` messages without a lease. Return their ids, in ascending order."""
        if table.definition.fair:
            rows = self.fair.claimed(self._claim_stream, cursor, table, params)
        else:
            # No low-water mark: for a whole batch it saves little.
            rows = self._claim_stream(cursor, table, params | {"low_water": 0})
        return sorted(row[0] for row in rows)

    def _claim_stream(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self._rows(cursor, table, "stream_claim", params)

    def stream_ids(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Return the ids of the messages in progress under the `token` of a stream, in ascending order."""
        return [row[0] for row in self._rows(cursor, table, "stream_ids", params)]

    def stream_rows(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Return the messages among `ids` that are in progress under `token`, as COLUMNS."""
        return self._rows(cursor, table, "stream_rows", params)

    def streams(self, cursor: Cursor, table: Table, params: Params) -> list[StreamsRow]:
        """Return the streams of the queue, by name."""
        return [StreamsRow(*row) for row in self._rows(cursor, table, "streams", params)]
