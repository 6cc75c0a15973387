-- Checks of `doctor`, and the state of the database and of connections.

-- name: server
-- What must be known of the database: its compatibility level (OPENJSON needs 130, which came with SQL Server 2016).
-- Not the server's version: Azure SQL Database calls itself 12 for ever. And the schema of the queues, as `place`.
select compatibility_level, {place} from sys.databases where database_id = db_id();

-- name: place
-- The schema of the queues: that of the catalogue which the user sees, or else the one where it would make one. A
-- caller's session tells, if it comes before all of our own. Afterwards each statement names the schema.
select {place};

-- name: isolation_level
-- Answer with the isolation level of a caller's transaction, and end the batch, if it is not READ COMMITTED. It stands
-- in front of the first batch of a call, so it costs no round trip. It is no error: that could doom the transaction.
-- REPEATABLE READ and SERIALIZABLE keep locks on all that a statement reads, and UPDLOCK lets READCOMMITTEDLOCK beside
-- it be ignored. SERIALIZABLE and SNAPSHOT refuse READPAST. READ UNCOMMITTED reads what may be rolled back.
-- Index: none. Locks: none. A session sees its own row without rights.
if (select transaction_isolation_level from sys.dm_exec_sessions where session_id = @@spid) in (1, 3, 4, 5)
begin
    select transaction_isolation_level as refused_level from sys.dm_exec_sessions where session_id = @@spid;
    return;
end;

-- name: note
-- Note the groups in the JSON array :groups for promote, in the transaction that pushed to them or freed them: beside
-- statements whose OUTPUT ... INTO is taken by the history, or would write a note for every message. In
-- the order of the array, as push_many: in that order promote takes them up.
-- Index: none. Locks: the new rows, which no other transaction waits for.
insert into {turns} (group_key)
select convert(varbinary(1020), convert(nvarchar(510), given.value))
from openjson(cast(:groups as nvarchar(max))) as given
order by cast(given.[key] as int);

-- name: note_staged
-- Note the groups of what the JSON array :attempts of the write :write staged, for promote, in the transaction that
-- publishes it: one note a group, where the OUTPUT of publish would write one for every message. In the order of their
-- first messages, in which promote takes them up.
-- Index: {table}__staged_order, the range of the write. Locks: none that another transaction waits for.
declare @given table (attempt char(32) collate Latin1_General_100_BIN2 not null primary key);
insert into @given (attempt)
select distinct cast(entry.value as char(32))
from openjson(@attempts) as entry;
insert into {turns} (group_key)
select coalesce(group_key, @group)
from {staged}
where write_id = @write and attempt in (select attempt from @given)
group by coalesce(group_key, @group)
order by min(part), min(place);

-- name: session
-- The settings of a connection of our own, made once.
-- Filtered indexes need the first six on and NUMERIC_ROUNDABORT off, of every writer (error 1934) and of every plan
-- that is to use one: SQL Server Agent and some FreeTDS clients come with QUOTED_IDENTIFIER off.
-- The isolation level is set because a pooled connection brings along whatever its last user had.
-- XACT_ABORT: an error, or a client that goes away in the middle of a batch, leaves no transaction open.
-- LOCK_TIMEOUT: a wait is given up after 5 s and tried again (see runner.RETRIES), 55 s in all.
-- LANGUAGE: one of the drivers passes on the words of an error and not its number; see refusals.py.
-- ROWCOUNT and TEXTSIZE would cut off what is claimed and read.
-- DEADLOCK_PRIORITY: if a call of the queue and a transaction of the application deadlock, the queue's call is the
-- victim, and is tried again.
set ansi_nulls, ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, quoted_identifier on;
set numeric_roundabort off;
set xact_abort, nocount on;
set transaction isolation level read committed;
set lock_timeout 5000;
set language us_english;
set rowcount 0;
set textsize 2147483647;
set deadlock_priority low;

-- name: indexes
-- The indexes of the queue, its history, its ranges and its other tables that can be used. Locks: none.
select name
from sys.indexes
where object_id in (object_id(N'{queue}'), object_id(N'{history}'), object_id(N'{turns}'), object_id(N'{ranges}'),
    object_id(N'{keys}'), object_id(N'{group_rates}'), object_id(N'{results}'), object_id(N'{batches}'),
    object_id(N'{dependencies}'))
    and is_disabled = 0 and name is not null;

-- name: read_clock
-- Locks: none.
select {now} as now;

-- name: check_escalation
-- How the locks of the queue may be escalated, where that is not disabled. Locks: none.
select lock_escalation_desc
from sys.tables
where object_id = object_id(N'{queue}') and lock_escalation_desc <> 'DISABLE';

-- name: check_ghosts
-- Ghost records of the queue and its indexes, where they are many: removed rows that claims still walk over.
-- Reads a sample of the pages. Locks: intent-shared ones.
select sum(ghost_record_count + version_ghost_record_count) as ghosts
from sys.dm_db_index_physical_stats(db_id(), object_id(N'{queue}'), null, null, 'SAMPLED')
having sum(ghost_record_count + version_ghost_record_count) > 50000;

-- name: check_options
-- Sessions in this database without the settings that filtered indexes need: session, program. Locks: none.
select top (10) session_id, coalesce(program_name, N'')
from sys.dm_exec_sessions
where database_id = db_id() and is_user_process = 1
    and (quoted_identifier = 0 or ansi_nulls = 0 or ansi_padding = 0 or ansi_warnings = 0
        or concat_null_yields_null = 0)
order by session_id;

-- name: check_settings
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

-- name: check_snapshots
-- Snapshots in this database that have been open for a minute or longer, on a readable secondary too: session, seconds.
-- Needs the right VIEW SERVER STATE. Locks: none.
select top (10) session_id, elapsed_time_seconds
from sys.dm_tran_active_snapshot_database_transactions
where session_id <> @@spid and elapsed_time_seconds > 60
order by elapsed_time_seconds desc;

-- name: check_transactions
-- Transactions in this database that have been open for a minute or longer, the oldest first: session, program,
-- seconds. Needs the right VIEW SERVER STATE to see those of others. Locks: none.
select top (10)
    open_one.session_id, coalesce(session.program_name, N''),
    datediff_big(second, begun.transaction_begin_time, sysdatetime())
from sys.dm_tran_session_transactions as open_one
join sys.dm_tran_active_transactions as begun on begun.transaction_id = open_one.transaction_id
join sys.dm_tran_database_transactions as here
    on here.transaction_id = open_one.transaction_id and here.database_id = db_id()
left join sys.dm_exec_sessions as session on session.session_id = open_one.session_id
where open_one.session_id <> @@spid and begun.transaction_begin_time < dateadd(second, -60, sysdatetime())
order by begun.transaction_begin_time;

-- name: sizes
-- The tables with names that begin with :stem: name, rows, bytes with the indexes, dead rows (unknown). Needs the right
-- VIEW DATABASE STATE. Locks: none.
select tables.name, sum(case when counted.index_id < 2 then counted.row_count else 0 end) as row_count,
    8192 * sum(counted.used_page_count) as bytes, cast(null as bigint) as dead
from sys.tables as tables
join sys.dm_db_partition_stats as counted on counted.object_id = tables.object_id
where tables.schema_id = schema_id(N'{schema}') and charindex(cast(:stem as nvarchar(128)), tables.name) = 1
group by tables.name;
