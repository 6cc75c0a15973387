-- A word after a colon is a parameter; with --values there are examples, for psql.

-- Finish those of :ids that are held under :token: they are deleted, for this queue keeps no history.
-- Index: the primary key. Locks: the rows. A crash finishes all or none.
delete from tq_emails
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
returning id;
