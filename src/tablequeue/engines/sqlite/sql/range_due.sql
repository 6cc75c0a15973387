-- Whether a sweep has something to do: for ranges whose lease has expired, for messages apart that are due or
-- abandoned; and whether a message apart is ready. Indexes: {table}__lease, those of the states; one entry of each.
-- Locks: none.
select
    exists (select 1 from {ranges} where lease_until <= {now}),
    exists (select 1 from {queue} where state = 'scheduled' and due_at <= {now})
    or exists (select 1 from {queue} where state = 'in_progress' and lease_until <= {now}),
    exists (select 1 from {queue} where state = 'ready');
