-- Seconds until a message can be popped: 0 if one is ready, null if none is to come. For who waits.
-- Indexes: {table}_ready, {table}_scheduled, {table}_in_progress, {table}_packs_lease, one entry
-- of each. Locks: none.
select case
    when exists (select 1 from {queue} where state = 'ready'){or_noted} then 0
    else cast(extract(epoch from least(
        (select min(due_at) from {queue} where state = 'scheduled'),
        (select min(lease_until) from {queue} where state = 'in_progress'),
        (select min(lease_until) from {packs})
    ) - {now}) as float8)
end;
