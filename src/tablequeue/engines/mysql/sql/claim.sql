-- Claim one message under a new lease: it is claimed by one consumer only, because SKIP LOCKED skips the rows that
-- another claim has locked. One packet in autocommit: the update, then the row of the id that it remembered, without a
-- lock. The second statement asks for LAST_INSERT_ID() in SQL, because MariaDB's response to the update lacks it if the
-- table has triggers.
-- It is not read if nothing was claimed: the id would be that of a claim before, which in the second claim of a batch
-- has the same token.
-- The state is checked again: a server that reads SKIP LOCKED and locks nothing must not claim for two.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- Index: {claim_index}, which has the order of the queue: if the rows had to be sorted, all of them would be locked. It
-- is forced, because with outdated statistics the optimizer may read the primary key instead. If the order is that of
-- the ids, it begins at :low_water, so that dead entries before it are not walked again (low_water.py).
-- A consumer that dies leaves its message in progress; sweep returns it when the lease has expired.
update (
    select last_insert_id(id) as claimed from {queue} force index ({claim_index})
    where {claimable}
    order by {order_by}
    limit 1
    for update skip locked
) as next
straight_join {queue} as message force index (primary) on message.id = next.claimed
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + interval :lease second
where {indexed};
select
    {claimed}
from {queue}
where row_count() > 0 and id = last_insert_id() and token = :token;
