-- A word after a colon is a parameter; with --values there are examples, for sqlite3.

-- Acknowledge those of :ids that were delivered at most once under :token.
-- Index: the primary key of the history. Locks: the database. A crash finishes all or none.
update tq_emails_history
set finished_at = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), token = null
where id in (select value from json_each(:ids)) and token = :token
returning id;
