-- A word after a colon is a parameter; with --values there are examples, for psql.

-- Move up to :n ready messages to the history: finished, or under :token until they are completed. If the queue
-- keeps no history, delete them.
-- Index: tq_emails__ready. Locks: the rows, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
with taken as (
    delete from tq_emails
    where id = any(array(
        select id from tq_emails
        where state = 'ready' and id > :low_water and not exists (select 1 from tq__paused where name = 'tq_emails' and until > coalesce(cast(:now as timestamptz), statement_timestamp()))
        order by id
        limit :n
        for update skip locked
    ))
    returning *
)
insert into tq_emails_history (
    id, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key,
    producer, consumer, headers, errors, payload
)
select
    id, attempts + 1, priority, cast(:token as uuid), pushed_at, due_at, coalesce(first_popped_at, coalesce(cast(:now as timestamptz), statement_timestamp())), coalesce(cast(:now as timestamptz), statement_timestamp()),
    case when cast(:token as uuid) is null then coalesce(cast(:now as timestamptz), statement_timestamp()) end, group_key, dedup_key, producer, cast(:consumer as text),
    headers, errors, payload
from taken
returning
    id, cast(payload as text), cast(headers as text), attempts, pushed_at, popped_at, cast(null as timestamptz), priority, group_key,
    dedup_key, due_at, cast(errors as text);
