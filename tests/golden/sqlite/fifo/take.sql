-- A word after a colon is a parameter; with --values there are examples, for sqlite3.

-- Move up to :n ready messages to the history: finished, or under :token until they are completed. If the queue
-- keeps no history, delete them.
-- Index: tq_emails__ready. Locks: the database. The statements commit together: a rollback puts all of them back, a crash
-- before the commit too.
insert into tq_emails_history (
    id, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key,
    producer, consumer, headers, errors, payload
)
select
    id, attempts + 1, priority, :token, pushed_at, due_at, coalesce(first_popped_at, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)), coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000),
    case when :token is null then coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000) end, group_key, dedup_key, producer, :consumer, headers, errors, payload
from tq_emails
where id in (select id from tq_emails where state = 'ready' and not exists (select 1 from tq__paused where name = 'tq_emails' and until > coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)) order by id limit :n);
delete from tq_emails
where id in (select id from tq_emails where state = 'ready' and not exists (select 1 from tq__paused where name = 'tq_emails' and until > coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)) order by id limit :n)
returning
    id, payload, headers, attempts + 1, pushed_at, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), null, priority, group_key, dedup_key, due_at, errors;
