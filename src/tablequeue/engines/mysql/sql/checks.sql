-- Checks of `doctor`, and the state of the database and of connections.

-- name: indexes
-- The indexes of the queue, its history, its ranges and its other tables. Locks: none.
select distinct index_name
from information_schema.statistics
where table_schema = {database}
    and table_name in ('{table}', '{table}_history', '{table}__turns', '{table}__ranges', '{table}__runs',
        '{table}__keys', '{table}__group_rates');

-- name: check_definers
-- The user as whom triggers of the queue run, if it was dropped. Nothing is found by a user who cannot see other users,
-- which takes the right to read the database `mysql`. Locks: none.
select distinct definer
from information_schema.triggers
where event_object_schema = {database} and event_object_table = '{table}'
    and (select count(distinct grantee) from information_schema.user_privileges) > 1
    and not exists (
        select 1 from information_schema.user_privileges
        where grantee = concat("'", replace(definer, '@', "'@'"), "'")
    );

-- name: check_keys
-- How many keys stay taken, because statements of others deleted their messages, and one of them. Reads all keys.
-- Index: the primary keys. Locks: none.
select count(*), min(convert(live.dedup_key using utf8mb4)), '{live_keys}', '{queue}'
from {live_keys} as live
where not exists (select 1 from {queue} as message where message.id = live.id)
having count(*) > 0;

-- name: check_purge
-- Old versions of rows that wait to be cleaned up, where they are very many. Needs the right PROCESS. Locks: none.
select `count`
from information_schema.innodb_metrics
where name = 'trx_rseg_history_len' and `count` > 100000;

-- name: check_settings
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

-- name: check_transactions
-- Transactions that have been open for a minute or longer, the oldest first: connection, user, seconds. Needs the right
-- PROCESS. Locks: none.
select
    trx_mysql_thread_id, coalesce(session.user, ''), timestampdiff(second, trx_started, now())
from information_schema.innodb_trx
left join information_schema.processlist as session on session.id = trx_mysql_thread_id
where trx_started < now() - interval 60 second and trx_mysql_thread_id <> connection_id()
order by trx_started
limit 10;

-- name: sizes
-- The tables with names that begin with :stem: name, rows, bytes with the indexes, dead rows (unknown). From the
-- server's statistics, so about. Locks: none.
select table_name, table_rows, data_length + index_length, cast(null as signed)
from information_schema.tables
where table_schema = {database} and table_type = 'BASE TABLE' and left(table_name, char_length(:stem)) = :stem;
