"""The operations on results of tasks, and on chords: tasks whose results together are given to another one.

The parts of a chord that have returned are rows, and these rows are its state: no part waits for the row of another
one. After its commit, each part looks whether the chord is complete, and one of those that find it complete claims it.
"""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import ChordRow
from tablequeue.engines.table import Table


class TaskResults(Part):
    def store_result(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Keep `body` under `key` for `expires` seconds, unless a final result is there; and note a part of a `chord`.

        success   whether the result is not replaced later.
        chord     that of the part; None: the result is not of a chord.
        """
        self._run(cursor, table, "store_result", params)
        if params["chord"] is not None:
            self.store_part(cursor, table, params)

    def store_part(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Note that the part `member` of a `chord` has `returned` that, once; nothing if the chord has ended."""
        self._run(cursor, table, "store_part", params)

    def read_results(self, cursor: Cursor, table: Table, params: Params) -> dict[str, bytes]:
        """Return the results with these `keys` that have not expired."""
        return {key: bytes(body) for key, body in self._rows(cursor, table, "read_results", params)}

    def forget_result(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Delete the result `key`."""
        self._run(cursor, table, "forget_result", params)

    def open_chord(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Begin a `chord` without parts, or begin it again. `body` is what is sent when it is complete."""
        self._run(cursor, table, "open_chord", params)

    def size_chord(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Set the `number` of parts of a `chord`."""
        self._run(cursor, table, "size_chord", params)

    def add_to_chord(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Count one more part of a `chord`."""
        self._run(cursor, table, "add_to_chord", params)

    def claim_chord(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Claim a `chord` under `token` for `lease` seconds, if it is complete. Return whether this call did."""
        self._run(cursor, table, "claim_chord", params)
        return bool(cursor.rowcount)

    def chord_parts(self, cursor: Cursor, table: Table, params: Params) -> list[bytes]:
        """Return what the parts of a `chord` have returned, in their order."""
        return [bytes(body) for (body,) in self._rows(cursor, table, "chord_parts", params)]

    def complete_chords(self, cursor: Cursor, table: Table, params: Params) -> list[ChordRow]:
        """Return up to `n` chords whose ids come after `after_chord`, and that are complete, and not claimed."""
        return [ChordRow(id, bytes(body)) for id, body in self._rows(cursor, table, "complete_chords", params)]

    def end_chord(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """End a `chord` that is held under `token`. Return whether it was."""
        self._run(cursor, table, "end_chord", params)
        ended = bool(cursor.rowcount)
        if ended:
            self._run(cursor, table, "forget_parts", params)
        return ended

    def expire_results(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Delete up to `n` expired results, and as many chords and parts. Return whether there may be more."""
        most = 0
        for statement in table.statements("expire_results"):
            cursor.execute(statement, params)
            most = max(most, cursor.rowcount)
        return most >= params["n"]
