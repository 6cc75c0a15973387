-- Find the messages to claim or take in a caller's transaction. Its isolation level is mostly REPEATABLE READ, the
-- default. At that level the locking range read of claim_many would lock the gaps between the rows too: no connection
-- could push or promote until the transaction ends. So the first statement finds messages without locks, in the order
-- of the queue, and the second one locks as many as are wanted by their ids. Locked rows are skipped.
-- The first statement runs on a connection of our own, which sees messages that the caller's transaction may not see,
-- and then in that transaction, for messages that it has pushed itself. The third statement is for claims on a
-- connection of our own that find messages first, in a fair queue; they are read after the commit (claimed).
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
        lease_until = {now} + interval :lease second}{and_slot}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where {free}
limit :n
for update skip locked;
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where {free}
limit :n
for update skip locked;
