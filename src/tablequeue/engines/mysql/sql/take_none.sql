-- Remove up to :n ready messages, for this queue keeps no history.
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
delete {queue} from {given} straight_join {queue} force index (primary) on {queue}.id = given.id;
