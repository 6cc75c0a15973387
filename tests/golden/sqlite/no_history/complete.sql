-- A word after a colon is a parameter; with --values there are examples, for sqlite3.

-- Finish those of :ids that are held under :token: they are deleted, for this queue keeps no history.
-- Index: the primary key. Locks: the database. A crash finishes all or none.
delete from tq_emails
where id in (select value from json_each(:ids)) and token = :token
returning id;
