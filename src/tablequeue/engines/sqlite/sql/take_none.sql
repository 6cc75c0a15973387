-- Delete up to :n ready messages: the queue keeps no history.
-- Index: {table}__ready. Locks: the database. A rollback puts all of them back, a crash before the commit too.
delete from {queue}
where id in (select id from {queue} where {claimable} order by {order_by} limit {take_limit})
returning
    {claimed with
        attempts = attempts + 1
        popped_at = {now}
        lease_until = null};
