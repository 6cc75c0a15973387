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
