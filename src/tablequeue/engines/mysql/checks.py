"""What endangers a queue on MariaDB and MySQL."""

from tablequeue.engines.checks import Check, Checks

CHECKS = Checks(
    Check(
        "check_transactions",
        "The connection {0} ({1}) has had a transaction open for {2} s: no old version of a row since then can be "
        "cleaned up, and claims walk over all of them.",
        "End it, or have it ended: kill {0}.",
    ),
    Check(
        "check_purge",
        "{0} transactions' old versions of rows wait to be cleaned up, which claims walk over.",
        "Look for a transaction that is open for long; if there is none, raise innodb_purge_threads.",
    ),
    Check("check_settings", "{0} is {1!r}: {2}.", "Set it: set global {0} = '{3}', and in the server's configuration."),
)
