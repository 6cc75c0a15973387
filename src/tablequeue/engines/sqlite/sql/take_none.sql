-- Delete up to :n ready messages: the queue keeps no history.
-- Index: {table}__ready. Locks: the database. A rollback puts all of them back, a crash before the commit too.
delete from {queue}
-- [not fair]
where id in (select id from {queue} where {claimable} order by {order_by} limit {take_limit})
-- [end]
-- [fair]
where id in (
    {take_in_turn}
)
-- [end]
returning
    {claimed with
        attempts = attempts + 1
        popped_at = {now}
        lease_until = null}{and_slot};
