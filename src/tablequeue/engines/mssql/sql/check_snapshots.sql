-- Snapshots in this database that have been open for a minute or longer, on a readable secondary too: session, seconds.
-- Needs the right VIEW SERVER STATE. Locks: none.
select top (10) session_id, elapsed_time_seconds
from sys.dm_tran_active_snapshot_database_transactions
where session_id <> @@spid and elapsed_time_seconds > 60
order by elapsed_time_seconds desc;
