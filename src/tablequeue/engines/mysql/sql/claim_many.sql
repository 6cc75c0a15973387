-- Claim up to :n messages under a new lease, as claim does one: lock them, then mark them. They are read after the
-- commit: see claimed.
-- Index: {claim_index}, then the primary key. Locks: the rows; rows that another claim has locked are skipped.
-- A crash before the commit claims none.
select id
from {queue} force index ({claim_index})
where {claimable}
order by {order_by}
limit :n
for update skip locked;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = :popped_at,
    first_popped_at = coalesce(first_popped_at, :popped_at),
    lease_until = :lease_until
where {indexed};
