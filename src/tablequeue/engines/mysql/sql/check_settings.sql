-- Settings that break a promise or get in the way: name, value, what comes of it, the value to set. Locks: none.
select name, cast(value as char), harm, good
from (
    select
        'innodb_flush_log_at_trx_commit' as name, @@global.innodb_flush_log_at_trx_commit as value,
        'a crash of the machine takes back what push has returned' as harm, '1' as good,
        @@global.innodb_flush_log_at_trx_commit <> 1 as wrong
    union all
    select
        'innodb_doublewrite', @@global.innodb_doublewrite, 'a crash of the machine may damage the queues', 'ON',
        @@global.innodb_doublewrite in ('0', 'OFF')
    union all
    select
        'binlog_format', @@global.binlog_format, 'SKIP LOCKED makes replicas differ', 'ROW',
        @@global.log_bin = 1 and @@global.binlog_format = 'STATEMENT'
    union all
    select
        'read_only', @@global.read_only,
        'pushes and claims of a user without the right to write all the same are refused',
        'OFF', @@global.read_only not in ('0', 'OFF')
    union all
    select
        'sql_mode', @@global.sql_mode, 'transactions of your own cut off what does not fit', 'STRICT_ALL_TABLES',
        instr(@@global.sql_mode, 'STRICT') = 0
) as settings
where wrong
order by name;
