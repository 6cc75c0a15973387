-- Ranges of a topic's log: how a subscription claims, completes, extends and ends them.

-- name: range_purge
-- Delete the ranges that have no message any more at or after the offset :start, but for the last one, after which the
-- next claim begins. Index: the primary key. Locks: the rows. A crash leaves all or nothing.
delete from {ranges}
where last_offset < :start and lease_until is null and id < (select max(id) from {ranges});

-- name: range_due
-- Indexes: {table}__lease, those of the states; one entry of each. Locks: none.
select
    exists (select 1 from {ranges} where lease_until <= {now}),
    exists (select 1 from {queue} where state = 'scheduled' and due_at <= {now})
    or exists (select 1 from {queue} where state = 'in_progress' and lease_until <= {now}),
    exists (select 1 from {queue} where state = 'ready');
