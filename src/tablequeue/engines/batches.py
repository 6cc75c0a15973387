"""The operations on batches: rows about them, and looks at which messages of them are left."""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.operation import Effect, by_text, each, first, ids, mapping, none, one, only, operation
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import BatchRow, OpenBatchRow, PushesRow
from tablequeue.engines.table import Statements, Table


def open_batch_row(id: int, on_dead: str, *left: object) -> OpenBatchRow:
    return OpenBatchRow(id, on_dead, *map(bool, left))


class Batches(Part):
    open_batch = by_text(Effect.STEP, only(int))
    """Open a batch of `pushed` messages, which this transaction pushes. Return its id."""

    @operation(Effect.STEP)
    def batch_of(self, cursor: Cursor, table: Table, params: Params) -> tuple[bool, int | None]:
        """Return whether the message `id` is held under `token`, and its batch. It stays so in this transaction."""
        row = self._row(cursor, table, "batch_of", params)
        return (False, None) if row is None else (True, row[0])

    batches_of = by_text(Effect.STEP, mapping)
    """Return those messages among `ids` that are held under `token` and are in a batch, each with its batch."""
    count_batch = by_text(Effect.STEP, none)
    """Count the `pushed` messages that this transaction adds to the batch `batch_id`."""
    find_batch = by_text(Effect.READ, first, of=Statements)
    """Return the table of the queue of the batch `id`; None if there is no such batch."""
    open_batches = by_text(Effect.READ, each(open_batch_row))
    """Return up to `n` open batches of the queue with ids above `after`, and what is left of each."""
    lock_batch = by_text(Effect.STEP, one(PushesRow))
    """Lock the batch `id`; None if it has ended, or another transaction ends it."""
    note_failed = by_text(Effect.STEP, none)
    """Note that this transaction pushes the callback for dead letters of the batch `id`."""
    end_batch = by_text(Effect.STEP, none)
    """End the batch `id`, with its final numbers `pushed`, `cancelled` and `dead`."""
    batch_progress = by_text(Effect.READ, one(BatchRow))
    """Return the batch `id`, and the numbers of its messages; None if it was forgotten with its queue."""
    batches_progress = by_text(Effect.READ, each(lambda id, *numbers: (id, BatchRow(*numbers))))
    """Return up to `n` open batches of the queue with ids above `after`, by id, each with its numbers."""
    batch_results = by_text(Effect.READ, mapping)
    """Return up to `n` results of messages of the batch `id` with ids above `after`, by id, as JSON."""
    uncancelled = by_text(Effect.READ, ids)
    """Return up to `n` messages of the batch `id` that were not told to stop; dead letters if `dead` is 1."""

    @operation(Effect.UPKEEP)
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
