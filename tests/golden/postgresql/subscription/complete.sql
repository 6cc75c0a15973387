-- A word after a colon is a parameter; with --values there are examples, for psql.

-- Complete the range that is held under :token: all :number messages of it, which have this :sum of ids.
-- Index: tq_events__s1__token. Locks: the row. A crash leaves it in progress until its lease expires.
update tq_events__s1__ranges
set finished_at = coalesce(cast(:now as timestamptz), statement_timestamp()), lease_until = null
where token = cast(:token as uuid) and lease_until is not null
    and messages = :number and ids_sum = :sum and left_ids is null
returning id;

-- Complete the messages of :ids that are held under :token: this one statement moves them to the history.
-- Index: the primary key. Locks: the rows. A crash leaves all of them completed, or none.
with finished as (
    delete from tq_events__s1
    where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
    returning *
)
insert into tq_events__s1_history (
    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
    consumer, headers, errors, payload
)
select
    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(cast(:now as timestamptz), statement_timestamp()), group_key, dedup_key, producer,
    consumer, headers, errors, payload
from finished
returning id;
