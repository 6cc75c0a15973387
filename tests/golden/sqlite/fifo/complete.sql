-- A word after a colon is a parameter; with --values there are examples, for sqlite3.

-- Complete the messages of :ids that are held under :token: they move to the history, or are deleted.
-- Index: the primary key. Locks: the database. The statements commit together: a crash leaves all of them completed, or
-- none.
insert into tq_emails_history (
    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
    consumer, headers, errors, payload
)
select
    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), group_key, dedup_key, producer,
    consumer, headers, errors, payload
from tq_emails
where id in (select value from json_each(:ids)) and token = :token;
delete from tq_emails
where id in (select value from json_each(:ids)) and token = :token
returning id;
