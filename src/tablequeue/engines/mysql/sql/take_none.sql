-- Delete up to :n ready messages: the queue keeps no history.
-- Index: {claim_index}, then the primary key. Locks: the rows, until the transaction ends; locked rows are skipped. A
-- rollback puts all of them back, a crash before the commit too.
select
    {claimed with
        attempts = attempts + 1
        popped_at = {now}
        lease_until = cast(null as datetime(6))}
from {queue} force index ({claim_index})
where {claimable}
order by {order_by}
limit :n
for update skip locked;
delete {queue} from {given} straight_join {queue} force index (primary) on {queue}.id = given.id
where {indexed};
