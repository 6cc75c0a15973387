-- A word after a colon is a parameter; with --values there are examples, for sqlite3.

-- Push one message: it is ready, or scheduled if it is due later.
-- Nothing is pushed if a live message has its :key. Locks: the database, for the length of the statement.
-- A crash before the commit leaves nothing.
insert into tq_emails (
    payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state
)
values (
    :payload, :headers, :producer, :priority, :group, :key, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    coalesce(:due, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) + cast(:delay * 1000000 as integer)),
    case
        when coalesce(:due, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) + cast(:delay * 1000000 as integer)) > coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) then 'scheduled'
        else 'ready'
    end
)
on conflict (dedup_key) where dedup_key is not null do nothing
returning id;
