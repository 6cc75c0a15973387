"""What endangers a queue on SQL Server."""

from tablequeue.engines.checks import Check, Checks

CHECKS = Checks(
    Check(
        "check_transactions",
        "The session {0} ({1}) has had a transaction open for {2} s: what it has locked is passed over, and "
        "removed rows stay as ghosts.",
        "End it, or have it ended: kill {0}.",
    ),
    Check(
        "check_snapshots",
        "The session {0} has read from a snapshot for {1} s: rows removed since stay, and claims walk over them.",
        "End it, or have it ended: kill {0}.",
    ),
    Check(
        "check_options",
        "The session {0} ({1}) has a setting off that filtered indexes need: it cannot write to a queue (error 1934).",
        "Set quoted_identifier and the ansi settings on in that program, or let it call the stored procedures.",
    ),
    Check("check_settings", "{0} is {1}: {2}.", "Run alter database current set {0} {3}.{4}"),
    Check(
        "check_ghosts",
        "The table and its indexes have {0} removed rows that are not cleaned up, which claims walk over.",
        "Look for a snapshot that is open for long, on a readable secondary too; then rebuild the indexes.",
        of_queue=True,
    ),
    Check(
        "check_escalation",
        "The locks of the table may be escalated ({0}): a table lock stops every consumer.",
        "Run alter table ... set (lock_escalation = disable).",
        of_queue=True,
    ),
)
