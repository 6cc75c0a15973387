-- Delete up to :n ready messages: the queue keeps no history.
-- Index: {table}__ready. Locks: the rows, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
-- [paced]
with {bucket}claimed as (
-- [end]
delete from {queue}
-- [not fair]
where id = any(array(
    select id from {queue}
    where {claimable}
    order by {order_by}
    limit {take_limit}
    for update skip locked
))
-- [end]
-- [fair]
where id = any(array(
    {take_in_turn}
))
-- [end]
returning
    -- [not paced]
    {claimed with
        attempts = attempts + 1
        popped_at = {now}
        lease_until = cast(null as timestamptz)}{and_slot};
    -- [end]
    -- [paced]
    {claimed with
        attempts = attempts + 1 as attempts
        popped_at = {now} as popped_at
        lease_until = cast(null as timestamptz) as lease_until}{and_slot}
), {spent}
select * from claimed;
-- [end]
