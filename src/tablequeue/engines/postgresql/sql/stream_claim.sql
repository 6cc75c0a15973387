-- Claim up to :n ready messages, with ids up to :high if that is given, for a batch of a stream. There is no lease:
-- they stay with the stream until it completes the batch, or the batch is released.
-- Index: {table}__ready. Locks: the rows; rows that another claim has locked are skipped.
-- In one transaction with stream_set: after a crash none is claimed.
-- [limited]
with {permits}claimed as (
-- [end]
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = cast(:token as uuid),
    consumer = cast(:consumer as text),
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = null
-- [not fair]
where id = any(array(
    select id from {queue}
    where {claimable} and (cast(:high as bigint) is null or id <= :high)
    order by {order_by}
    limit {claim_limit}
    for update skip locked
))
-- [end]
-- [fair]
where id = any(array(
    {in_turn_up_to_high}
))
-- [end]
-- [not limited]
returning id{and_slot};
-- [end]
-- [limited]
returning id{and_slot}
), {noted}
select * from claimed;
-- [end]
