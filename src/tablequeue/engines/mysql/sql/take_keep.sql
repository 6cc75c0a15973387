-- Remove up to :n ready messages to the history: finished, or under :token until they are acknowledged.
-- Index: {claim_index}, then the primary key. Locks: the rows, until the transaction ends; those that another one has
-- are passed over. A rollback puts all of them back, a crash before the commit too.
select
    id, payload, headers, attempts + 1, pushed_at, {now}, cast(null as datetime(6)), priority,
    convert(group_key using utf8mb4) as group_key, convert(dedup_key using utf8mb4) as dedup_key, due_at
from {queue} force index ({claim_index})
where {claimable}
order by {order_by}
limit :n
for update skip locked;
insert into {history} (
    id, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key,
    producer, consumer, headers, errors, payload
)
select
    message.id, attempts + 1, priority, :token, pushed_at, due_at, coalesce(first_popped_at, :popped_at), :popped_at,
    case when :token is null then cast(:popped_at as datetime(6)) end, group_key, dedup_key, producer, :consumer,
    headers, errors, payload
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
for update;
delete {queue} from {given} straight_join {queue} force index (primary) on {queue}.id = given.id;
