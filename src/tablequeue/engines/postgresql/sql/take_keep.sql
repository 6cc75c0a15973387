-- Remove up to :n ready messages to the history: finished, or under :token until they are acknowledged.
-- Index: {table}__ready. Locks: the rows, until the transaction ends; those that another one has are passed over.
-- A rollback puts all of them back, a crash before the commit too.
with taken as (
    delete from {queue}
    where id = any(array(
        select id from {queue}
        where {claimable}
        order by {order_by}
        limit :n
        for update skip locked
    ))
    returning *
)
insert into {history} (
    id, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key,
    producer, consumer, headers, errors, payload
)
select
    id, attempts + 1, priority, cast(:token as uuid), pushed_at, due_at, coalesce(first_popped_at, {now}), {now},
    case when cast(:token as uuid) is null then {now} end, group_key, dedup_key, producer, cast(:consumer as text),
    headers, errors, payload
from taken
returning
    id, {payload_text}, {headers_text}, attempts, pushed_at, popped_at, cast(null as timestamptz), priority, group_key,
    dedup_key, due_at;
