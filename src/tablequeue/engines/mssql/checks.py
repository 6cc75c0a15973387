"""What endangers a queue on SQL Server."""

from tablequeue.engines.checks import Check, Checks

CHECKS = Checks(
    Check(
        "check_transactions",
        "The session {0} ({1}) has had a transaction open for {2} s: the rows that it has locked are skipped, and "
        "deleted rows stay as ghosts.",
        "End it, or have it ended: kill {0}.",
    ),
    Check(
        "check_snapshots",
        "The session {0} has read from a snapshot for {1} s: rows deleted since then stay, and claims walk over them.",
        "End it, or have it ended: kill {0}.",
    ),
    Check(
        "check_options",
        "The session {0} ({1}) has turned off a setting that filtered indexes need: it cannot write to a queue (error "
        "1934).",
        "Set quoted_identifier and the ansi settings on in that program, or let it call the stored procedures.",
    ),
    Check("check_settings", "{0} is {1}: {2}.", "Run alter database current set {0} {3}.{4}"),
    Check(
        "check_ghosts",
        "The table and its indexes have {0} deleted rows that are not cleaned up, and claims walk over them.",
        "Look for a snapshot that has been open for long, also on a readable secondary; then rebuild the indexes.",
        of_queue=True,
    ),
    Check(
        "check_escalation",
        "The locks of the table may be escalated ({0}): a table lock stops every consumer.",
        "Run alter table ... set (lock_escalation = disable).",
        of_queue=True,
    ),
)
