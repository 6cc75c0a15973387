-- Checks of `doctor`, and the state of the database and of connections.

-- name: indexes
-- The indexes of all tables of the queue or topic that can be used. Locks: none.
select index_class.relname
from pg_index
join pg_class as index_class on index_class.oid = pg_index.indexrelid
where indisvalid and indrelid in (
    to_regclass('{queue}'), to_regclass('{history}'), to_regclass('{turns}'), to_regclass('{ranges}'),
    to_regclass('{runs}'), to_regclass('{keys}'), to_regclass('{group_rates}'), to_regclass('{results}')
);

-- name: check_autovacuum
-- Whether autovacuum passes the queue over. Locks: none.
select relname
from pg_class
where oid = cast('{queue}' as regclass)
    and reloptions && array['autovacuum_enabled=false', 'autovacuum_enabled=off', 'autovacuum_enabled=0'];

-- name: check_dead_rows
-- Dead rows of the queue, beside its live ones, where autovacuum does not keep up: it is told to come at 10,000.
-- Counted by the statistics of the server, so about. Locks: none.
select n_dead_tup, n_live_tup
from pg_stat_user_tables
where relid = cast('{queue}' as regclass) and n_dead_tup > 50000;

-- name: check_prepared
-- Transactions of this database that have been prepared for a minute or longer: name, seconds. Locks: none.
select gid, cast(extract(epoch from clock_timestamp() - prepared) as bigint)
from pg_prepared_xacts
where database = current_database() and prepared < clock_timestamp() - interval '60 seconds'
order by prepared
limit 10;

-- name: check_settings
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

-- name: check_transactions
-- Sessions of this database whose transaction has held back the clean-up of dead rows for a minute or longer, the
-- oldest first: number, name, seconds. Of other users only with the rights of pg_read_all_stats. Locks: none.
select
    pid, coalesce(nullif(application_name, ''), cast(usename as text), backend_type),
    cast(extract(epoch from clock_timestamp() - xact_start) as bigint)
from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
    and (backend_xmin is not null or backend_xid is not null)
    and xact_start < clock_timestamp() - interval '60 seconds'
order by xact_start
limit 10;

-- name: sizes
-- The tables with names that begin with :stem: name, rows, bytes with the indexes, dead rows. Both counts of rows are
-- those of the server's statistics, so about. Locks: none.
select cast(class.relname as text), n_live_tup, pg_total_relation_size(class.oid), n_dead_tup
from pg_class as class
join pg_stat_user_tables as counted on counted.relid = class.oid
where counted.schemaname = '{schema}' and starts_with(class.relname, :stem);
