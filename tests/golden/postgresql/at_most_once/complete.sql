-- A word after a colon is a parameter; with --values there are examples, for psql.

-- Acknowledge those of :ids that were delivered at most once under :token.
-- Index: the primary key of the history. Locks: the rows. A crash finishes all or none.
update tq_emails_history
set finished_at = coalesce(cast(:now as timestamptz), statement_timestamp()), token = null
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
returning id;
