-- A word after a colon is a parameter; with --values there are examples, for sqlite3.

-- Push one message to the log.
-- Locks: the database, for the length of the statement. A crash before the commit leaves nothing.
insert into tq_events (pushed_at, producer, group_key, headers, payload)
values (coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), :producer, :group, :headers, :payload)
returning id;
