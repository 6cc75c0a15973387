-- If the log has the offset :start: have the commit of this transaction flush the WAL up to its own record, and so all
-- commits that it has seen: those that gave offsets may not have flushed (range_claim). A commit flushes only if the
-- transaction has an id and synchronous_commit is not off.
select
    cast(pg_current_xact_id() as text),
    case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end
where (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1) >= :start;
