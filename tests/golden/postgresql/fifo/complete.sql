-- A word after a colon is a parameter; with --values there are examples, for psql.

-- Complete the messages of :ids that are held under :token: they move to the history, or are deleted.
-- Index: the primary key. Locks: the rows. A crash leaves all of them completed, or none.
with finished as (
    delete from tq_emails
    where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
    returning *
)
insert into tq_emails_history (
    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
    consumer, headers, errors, payload
)
select
    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(cast(:now as timestamptz), statement_timestamp()), group_key, dedup_key, producer,
    consumer, headers, errors, payload
from finished
returning id;
