-- The first offset that a subscription still needs: of a range in progress, or the next one to claim.
-- Indexes: {table}__lease, {table}__last. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it is refused
-- (error 1222) while a transaction is finishing a range, which may be rolled back; topics.py says what then.
select coalesce(
    (select min(first_offset) from {ranges} with (nowait) where lease_until is not null),
    (
        select top (1) last_offset + 1
        from {ranges} with (index ({table}__last), readcommittedlock)
        order by id desc
    )
) as first;
