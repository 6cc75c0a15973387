"""The operations of streams: batches of messages that can be read again until they are complete."""

from __future__ import annotations

from typing import ClassVar

from tablequeue.engines.connection import Cursor
from tablequeue.engines.fair import Fair
from tablequeue.engines.low_water import Claim
from tablequeue.engines.operation import Effect, by_text, each, ids, none, one, operation, rows
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import StreamRow, StreamsRow
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row


class Streams(Part):
    fair: ClassVar[Fair] = Fair()

    stream_open = by_text(Effect.STEP, none)
    """Begin a new run of `stream`, with an epoch of its own."""
    stream_lock = by_text(Effect.STEP, one(StreamRow))
    stream_set = by_text(Effect.STEP, none)

    @operation(Effect.STEP)
    def stream_claim(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Claim up to `n` messages without a lease. Return their ids, in ascending order."""
        return sorted(row[0] for row in table.bound(self._in_order, self._claim_stream)(cursor, table, params))

    def _in_order(self, table: Table, claim: Claim) -> Claim:
        return self.fair.in_order(table, claim, marked=False)  # for a whole batch a mark saves little

    def _claim_stream(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self._rows(cursor, table, "stream_claim", params)

    stream_ids = by_text(Effect.READ, ids)
    """Return the ids of the messages in progress under the `token` of a stream, in ascending order."""
    stream_rows = by_text(Effect.READ, rows)
    """Return the messages among `ids` that are in progress under `token`, as COLUMNS."""
    streams = by_text(Effect.READ, each(StreamsRow))
    """Return the streams of the queue, by name."""
