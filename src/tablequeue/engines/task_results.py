"""The operations on results of tasks, and on chords: tasks whose results together are given to another one.

The parts of a chord that have returned are rows, and these rows are its state: no part waits for the row of another
one. After its commit, each part looks whether the chord is complete, and one of those that find it complete claims it.
"""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.operation import Effect, by_text, changed, each, none, operation
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import ChordRow
from tablequeue.engines.table import Table


class TaskResults(Part):
    @operation(Effect.UPKEEP)
    def store_result(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Keep `body` under `key` for `expires` seconds, unless a final result is there; and note a part of a `chord`.

        success   whether the result is not replaced later.
        chord     that of the part; None: the result is not of a chord.
        """
        self._run(cursor, table, "store_result", params)
        if params["chord"] is not None:
            self.store_part(cursor, table, params)

    store_part = by_text(Effect.UPKEEP, none)
    """Note that the part `member` of a `chord` has `returned` that, once; nothing if the chord has ended."""
    read_results = by_text(Effect.READ, lambda cursor: {key: bytes(body) for key, body in cursor.fetchall()})
    """Return the results with these `keys` that have not expired."""
    forget_result = by_text(Effect.UPKEEP, none)
    """Delete the result `key`."""
    open_chord = by_text(Effect.UPKEEP, none)
    """Begin a `chord` without parts, or begin it again. `body` is what is sent when it is complete."""
    size_chord = by_text(Effect.UPKEEP, none)
    """Set the `number` of parts of a `chord`."""
    add_to_chord = by_text(Effect.WRITE, none)
    """Count one more part of a `chord`."""
    claim_chord = by_text(Effect.UPKEEP, changed)
    """Claim a `chord` under `token` for `lease` seconds, if it is complete. Return whether this call did."""
    chord_parts = by_text(Effect.READ, each(bytes))
    """Return what the parts of a `chord` have returned, in their order."""
    complete_chords = by_text(Effect.READ, each(lambda id, body: ChordRow(id, bytes(body))))
    """Return up to `n` chords whose ids come after `after_chord`, and that are complete, and not claimed."""

    @operation(Effect.STEP, others="forget_parts")
    def end_chord(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """End a `chord` that is held under `token`. Return whether it was."""
        self._run(cursor, table, "end_chord", params)
        ended = bool(cursor.rowcount)
        if ended:
            self._run(cursor, table, "forget_parts", params)
        return ended

    @operation(Effect.UPKEEP)
    def expire_results(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Delete up to `n` expired results, and as many chords and parts. Return whether there may be more."""
        most = 0
        for statement in table.statements("expire_results"):
            cursor.execute(statement, params)
            most = max(most, cursor.rowcount)
        return most >= params["n"]
