-- Settings that break a promise: name, value, what comes of it, the value to set. Locks: none.
select setting.name, setting.reset_val, wrong.harm, wrong.good
from pg_settings as setting
join (
    values
        ('fsync', 'off', 'a crash of the server may damage the queues', 'on'),
        ('full_page_writes', 'off', 'a crash of the machine may damage the queues', 'on'),
        ('synchronous_commit', 'off', 'a crash of the server takes back what push has returned', 'on'),
        ('autovacuum', 'off', 'dead rows stay, and claims walk over all of them', 'on'),
        (
            'default_transaction_isolation', 'repeatable read',
            'claims in transactions of your own fail where they meet others', 'read committed'
        ),
        (
            'default_transaction_isolation', 'serializable',
            'claims in transactions of your own fail where they meet others', 'read committed'
        )
) as wrong (name, bad, harm, good) on wrong.name = setting.name and wrong.bad = setting.reset_val
order by setting.name;
