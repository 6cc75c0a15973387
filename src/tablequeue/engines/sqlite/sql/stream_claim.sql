-- Claim up to :n ready messages, with ids up to :high if that is given, for a batch of a stream. There is no lease:
-- they stay with the stream until it completes the batch, or the batch is released.
-- Index: {table}__ready. Locks: the database. In one transaction with stream_set: after a crash none is claimed.
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = null
-- [not fair]
where id in (
    select id from {queue}
    where {claimable} and (:high is null or id <= :high)
    order by {order_by}
    limit {claim_limit}
)
-- [end]
-- [fair]
where id in (
    {in_turn_up_to_high}
)
-- [end]
returning id{and_slot};
