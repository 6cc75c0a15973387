"""What endangers a queue on PostgreSQL."""

from tablequeue.engines.checks import Check, Checks

CHECKS = Checks(
    Check(
        "check_transactions",
        "The session {0} ({1}) has had a transaction open for {2} s: rows that died since then cannot be cleaned up, "
        "and claims walk over all of them.",
        "End it: select pg_terminate_backend({0}). idle_in_transaction_session_timeout ends future ones.",
    ),
    Check(
        "check_prepared",
        "The prepared transaction {0!r} has been open for {1} s: rows that died since then cannot be cleaned up.",
        "End it: commit prepared '{0}' or rollback prepared '{0}'.",
    ),
    Check(
        "check_slots",
        "The replication slot {0} is {1} transactions behind: rows that died since then cannot be cleaned up.",
        "Start its reader again, or drop it: select pg_drop_replication_slot('{0}').",
    ),
    Check(
        "check_settings",
        "{0} is {1}: {2}.",
        "Set it: alter system set {0} = '{3}', then select pg_reload_conf(); or where the role or the URL sets it.",
    ),
    Check(
        "check_dead_rows",
        "The table has {0} dead rows beside {1} live ones, and claims walk over them: autovacuum does not keep up.",
        "Run vacuum on it, and look for what hinders autovacuum: an open transaction, too few workers, a lock.",
        of_queue=True,
    ),
    Check(
        "check_autovacuum",
        "Autovacuum is off for the table {0}: its dead rows stay, and claims walk over all of them.",
        "Run alter table {0} reset (autovacuum_enabled).",
        of_queue=True,
    ),
)
