-- Claim up to :n ready messages, with ids up to :high if that is given, for a batch of a stream. There is no lease:
-- they stay with the stream until it completes the batch, or the batch is released.
-- Index: {claim_index}, then the primary key. Locks: the rows; rows that another claim has locked are skipped.
-- In one transaction with stream_set: after a crash none is claimed.
select id
from {queue} force index ({claim_index})
where {claimable} and (:high is null or id <= :high)
order by {order_by}
limit :n
for update skip locked;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    first_popped_at = coalesce(first_popped_at, {now}),
    popped_at = {now},
    lease_until = null
where {indexed};
