-- Whether a sweep has something to do: for ranges whose lease has expired, for messages apart that are due or
-- abandoned; and whether a message apart is ready.
-- Indexes: {table}__lease, {table}__state; one entry of each. Locks: none.
select
    exists (select 1 from {ranges} force index ({table}__lease) where lease_until <= {now}),
    exists (select 1 from {queue} force index ({table}__state) where state = 'scheduled' and sweep_at <= {now})
    or exists (select 1 from {queue} force index ({table}__state) where state = 'in_progress' and sweep_at <= {now}),
    exists (select 1 from {queue} force index ({table}__state) where state = 'ready'){or_noted};
