"""What endangers a queue on MariaDB and MySQL."""

from tablequeue.engines.checks import Check, Checks

CHECKS = Checks(
    Check(
        "check_transactions",
        "The connection {0} ({1}) has had a transaction open for {2} s: no row version that became old since then can "
        "be cleaned up, and claims walk over all of them.",
        "End it, or have it ended: kill {0}.",
    ),
    Check(
        "check_purge",
        "The old row versions of {0} transactions are not cleaned up yet, and claims walk over them.",
        "Look for a transaction that has been open for long; if there is none, raise innodb_purge_threads.",
    ),
    Check(
        "check_definers",
        "The user {0} was dropped, as whom the triggers of the queue run: pushes and completions are refused.",
        "Create that user again, with select, insert, update, delete and trigger on the tables; it may be locked.",
        of_queue=True,
    ),
    Check(
        "check_keys",
        "{0:,} keys are taken although their messages are gone, such as {1!r}: statements that are not tablequeue's "
        "deleted these messages, and a push with such a key is refused.",
        "Free the keys: delete live from {2} as live left join {3} as message on message.id = live.id where message.id "
        "is null. Use `purge` or `cancel` the next time.",
        of_queue=True,
    ),
    Check("check_settings", "{0} is {1!r}: {2}.", "Set it: set global {0} = '{3}', and in the server's configuration."),
)
