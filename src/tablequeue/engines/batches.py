"""The operations on batches: rows about them, and looks at which messages of them are left."""

from __future__ import annotations

from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part, pairs
from tablequeue.engines.rows import BatchRow, OpenBatchRow, PushesRow
from tablequeue.engines.table import Statements, Table


class Batches(Part):
    def open_batch(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Open a batch of `pushed` messages, which this transaction pushes. Return its id."""
        (id,) = self._rows(cursor, table, "open_batch", params)[0]
        return int(id)

    def batch_of(self, cursor: Cursor, table: Table, params: Params) -> tuple[bool, int | None]:
        """Return whether the message `id` is held under `token`, and its batch. It stays so in this transaction."""
        row = self._row(cursor, table, "batch_of", params)
        return (False, None) if row is None else (True, row[0])

    def batches_of(self, cursor: Cursor, table: Table, params: Params) -> dict[int, Any]:
        """Return those messages among `ids` that are held under `token` and are in a batch, each with its batch."""
        return pairs(self._rows(cursor, table, "batches_of", params))

    def count_batch(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Count the `pushed` messages that this transaction adds to the batch `batch_id`."""
        self._run(cursor, table, "count_batch", params)

    def find_batch(self, cursor: Cursor, table: Statements, params: Params) -> str | None:
        """Return the table of the queue of the batch `id`; None if there is no such batch."""
        row = self._row(cursor, table, "find_batch", params)
        return row and row[0]

    def open_batches(self, cursor: Cursor, table: Table, params: Params) -> list[OpenBatchRow]:
        """Return up to `n` open batches of the queue with ids above `after`, and what is left of each."""
        rows = self._rows(cursor, table, "open_batches", params)
        return [OpenBatchRow(id, on_dead, *map(bool, left)) for id, on_dead, *left in rows]

    def lock_batch(self, cursor: Cursor, table: Table, params: Params) -> PushesRow | None:
        """Lock the batch `id`; None if it has ended, or another transaction ends it."""
        row = self._row(cursor, table, "lock_batch", params)
        return row and PushesRow(*row)

    def note_failed(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Note that this transaction pushes the callback for dead letters of the batch `id`."""
        self._run(cursor, table, "note_failed", params)

    def end_batch(self, cursor: Cursor, table: Table, params: Params) -> None:
        """End the batch `id`, with its final numbers `pushed`, `cancelled` and `dead`."""
        self._run(cursor, table, "end_batch", params)

    def batch_progress(self, cursor: Cursor, table: Table, params: Params) -> BatchRow | None:
        """Return the batch `id`, and the numbers of its messages; None if it was forgotten with its queue."""
        row = self._row(cursor, table, "batch_progress", params)
        return row and BatchRow(*row)

    def batches_progress(self, cursor: Cursor, table: Table, params: Params) -> list[tuple[int, BatchRow]]:
        """Return up to `n` open batches of the queue with ids above `after`, by id, each with its numbers."""
        rows = self._rows(cursor, table, "batches_progress", params)
        return [(id, BatchRow(*numbers)) for id, *numbers in rows]

    def batch_results(self, cursor: Cursor, table: Table, params: Params) -> dict[int, Any]:
        """Return up to `n` results of messages of the batch `id` with ids above `after`, by id, as JSON."""
        return pairs(self._rows(cursor, table, "batch_results", params))

    def uncancelled(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Return up to `n` messages of the batch `id` that were not told to stop; dead letters if `dead` is 1."""
        return [row[0] for row in self._rows(cursor, table, "uncancelled", params)]

    def forget_batches(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Forget up to `n` batches of the queue that ended at least `age` seconds ago. Return their number.

        Counts that no batch has any more go too.
        """
        forgotten = self._forget(cursor, table, "", params)
        self._forget(cursor, table, "_counts", params)
        return forgotten

    def _forget(self, cursor: Cursor, table: Table, what: str, params: Params) -> int:
        ids = [row[0] for row in self._rows(cursor, table, f"forget_batches.find{what}", params)]
        if ids:
            self._run(cursor, table, f"forget_batches.change{what}", {"ids": table.engine.dump_ids(ids)})
        return len(ids)
