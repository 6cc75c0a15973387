-- Claim up to :n ready messages under a new lease; each is claimed by one consumer only, for SKIP LOCKED passes
-- over those that another one is claiming.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- Index: {table}__ready; in order of ids from :low_water on: dead entries before it are not walked again
-- (low_water.py). {row} = any(array(...)): the subquery runs once; a join may run it again and claim more than :n.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
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
    lease_until = {now} + cast(:lease as float8) * interval '1 second'
-- [not fair]
where {row} = any(array(
    select {row} from {queue}
    where {claimable}
    order by {order_by}
    limit {claim_limit}
    for update skip locked
))
-- [end]
-- [fair]
where id = any(array(
    {in_turn}
))
-- [end]
returning
    -- [not limited]
    {claimed}{and_slot};
    -- [end]
    -- [limited]
    {claimed}{and_slot}
), {noted}
select {of_claimed} from claimed;
-- [end]
