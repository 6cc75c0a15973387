-- Settings that break a promise or get in the way: name, value, what comes of it, the value to set. A time-out does
-- from 1 to `most` of its units. Locks: none.
select setting.name, setting.reset_val || coalesce(' ' || setting.unit, ''), wrong.harm, wrong.good
from pg_settings as setting
join (
    values
        ('fsync', 'off', null, 'a crash of the server may damage the queues', 'on'),
        ('full_page_writes', 'off', null, 'a crash of the machine may damage the queues', 'on'),
        ('synchronous_commit', 'off', null, 'a crash of the server takes back what push has returned', 'on'),
        ('autovacuum', 'off', null, 'dead rows stay, and claims walk over all of them', 'on'),
        (
            'default_transaction_isolation', 'repeatable read', null,
            'claims in transactions of your own fail where they meet others', 'read committed'
        ),
        (
            'default_transaction_isolation', 'serializable', null,
            'claims in transactions of your own fail where they meet others', 'read committed'
        ),
        ('default_transaction_read_only', 'on', null, 'every push and every claim is refused', 'off'),
        (
            'statement_timeout', null, 9999,
            'calls that wait for a lock, or have much to do, are ended with Locked', '60s'
        ),
        (
            'idle_session_timeout', null, 2147483647,
            'the session that wakes waiting consumers is ended again and again; until the next one they poll', '0'
        )
) as wrong (name, bad, most, harm, good) on wrong.name = setting.name
    and case
        when wrong.most is null then setting.reset_val = wrong.bad
        else cast(setting.reset_val as bigint) between 1 and wrong.most
    end
order by setting.name;
