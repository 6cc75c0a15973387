"""What endangers a queue on SQLite."""

from tablequeue.engines.looking import Check

CHECKS = (
    Check(
        "check_wal",
        "The WAL {0}-wal has {1} MB: a reader has had a transaction open all the while, or one transaction wrote that "
        "much; reads are slower.",
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
