"""What endangers a queue on SQLite."""

from __future__ import annotations

from pathlib import Path

from tablequeue.engines.checks import Check, Checks
from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.table import Statements
from tablequeue.engines.texts import Row

# Bytes of a WAL that no checkpoint has emptied for long. SQLite tries a checkpoint from 4 MB on.
LARGEST_WAL = 64 << 20


class SQLiteChecks(Checks):
    def check(self, cursor: Cursor, table: Statements, params: Params) -> list[Row]:
        rows = super().check(cursor, table, params)
        if params["check"] == "check_synchronous" and cursor.flushed:
            return []  # it is NORMAL because we flush after the commit ourselves
        if params["check"] == "check_wal":
            # SQLite itself reports the size of the WAL only to a connection that begins a checkpoint.
            files = [(path, Path(f"{path}-wal")) for (path,) in rows]
            sizes = [(path, file.stat().st_size) for path, file in files if file.exists()]
            return [(path, size >> 20) for path, size in sizes if size > LARGEST_WAL]
        return rows


CHECKS = SQLiteChecks(
    Check(
        "check_wal",
        "The WAL {0}-wal has {1} MB, which slows reads: a reader has had a transaction open for long, or one "
        "transaction wrote that much.",
        "End long transactions of readers; then pragma wal_checkpoint(truncate) empties it.",
    ),
    Check(
        "check_journal",
        "The journal mode is {0}: readers and the writer wait for each other.",
        "Close the programs that use the file; the next connect of tablequeue that may write sets it to WAL.",
    ),
    Check(
        "check_synchronous",
        "synchronous is {0} on the connections of this engine: a power cut may take back what push has returned.",
        "Leave the pragma out, or set it to FULL.",
    ),
)
