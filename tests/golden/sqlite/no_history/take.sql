-- A word after a colon is a parameter; with --values there are examples, for sqlite3.

-- Remove up to :n ready messages, for this queue keeps no history.
-- Index: tq_emails__ready. Locks: the database. A rollback puts all of them back, a crash before the commit too.
delete from tq_emails
where id in (select id from tq_emails where state = 'ready' order by id limit :n)
returning id, payload, headers, attempts + 1, pushed_at, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), null, priority, group_key, dedup_key, due_at;
