-- Remove up to :n ready messages to the history: finished, or under :token until they are acknowledged.
-- Index: {table}__ready. Locks: the database. The statements commit together: a rollback puts all of them back, a crash
-- before the commit too.
insert into {history} (
    id, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key,
    producer, consumer, headers, errors, payload
)
select
    id, attempts + 1, priority, :token, pushed_at, due_at, coalesce(first_popped_at, {now}), {now},
    case when :token is null then {now} end, group_key, dedup_key, producer, :consumer, headers, errors, payload
from {queue}
where id in (select id from {queue} where {claimable} order by {order_by} limit :n);
delete from {queue}
where id in (select id from {queue} where {claimable} order by {order_by} limit :n)
returning id, payload, headers, attempts + 1, pushed_at, {now}, null, priority, group_key, dedup_key, due_at;
