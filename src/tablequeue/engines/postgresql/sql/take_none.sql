-- Delete up to :n ready messages: the queue keeps no history.
-- Index: {table}__ready. Locks: the rows, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
delete from {queue}
-- [not fair]
where id = any(array(
    select id from {queue}
    where {claimable}
    order by {order_by}
    limit :n
    for update skip locked
))
-- [end]
-- [fair]
where id = any(array(
    {in_turn}
))
-- [end]
returning
    {claimed with
        attempts = attempts + 1
        popped_at = {now}
        lease_until = cast(null as timestamptz)}{and_slot};
