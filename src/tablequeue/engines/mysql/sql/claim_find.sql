-- Which messages to claim or take inside a transaction of the caller's. That is REPEATABLE READ mostly, the default, in
-- which the locking range read of claim_many would lock the gaps too: nobody could push or promote until it ends, not
-- even this program on another connection. So they are looked for without locks, in the order of the queue, and then
-- locked by their ids, as many as are wanted; locked rows are skipped.
-- The first statement is run on a connection of our own, which sees what the caller's transaction may not, and then
-- within it, for what it has pushed itself.
-- Indexes: {claim_index}, the primary key. Locks: the rows.
select id, due_at, priority
from {queue} force index ({claim_index})
where {claimable}
order by {order_by}
limit :look;
select
    {claimed with
        id = message.id
        attempts = attempts + 1
        popped_at = {now}
        lease_until = {now} + interval :lease second}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where {free}
limit :n
for update skip locked;
