-- Claim up to :n ready messages under a new lease; each is claimed by one consumer only.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- Index: {table}__ready. Locks: the database, for the length of the statement.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + cast(:lease * 1000000 as integer)
-- [not fair]
where id in (select id from {queue} where {claimable} order by {order_by} limit {claim_limit})
-- [end]
-- [fair]
where id in (
    {in_turn}
)
-- [end]
returning
    {claimed}{and_slot};
