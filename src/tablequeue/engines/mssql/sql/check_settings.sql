-- Settings of the database that break a promise or make readers wait: name, value, its effect, what to set, and the
-- side effects of that. Locks: none.
select wrong.name, wrong.value, wrong.harm, wrong.good, wrong.besides
from sys.databases as base
cross apply (
    values
        (
            case when is_read_committed_snapshot_on = 0 then 1 else 0 end, 'read_committed_snapshot', 'off',
            'every read of a queue waits for transactions that change it', 'on with rollback immediate',
            ' This rolls back all other open transactions and ends their connections. Without the last three words, '
            + 'it waits until no other connection is open. Do it at a quiet time.'
        ),
        (
            case when delayed_durability_desc = 'FORCED' then 1 else 0 end, 'delayed_durability', 'forced',
            'a crash of the server takes back what push has returned', '= allowed', ''
        ),
        (
            case when is_auto_close_on = 1 then 1 else 0 end, 'auto_close', 'on',
            'the first call after a pause waits for the database to open', 'off', ''
        )
) as wrong (found, name, value, harm, good, besides)
where base.database_id = db_id() and wrong.found = 1
order by wrong.name;
