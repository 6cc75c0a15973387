-- The first offset that a subscription still needs: of a range in progress, or the next one to claim.
-- Indexes: {table}__lease, the primary key. Locks: none.
select least(
    last_offset + 1,
    coalesce(
        (select min(first_offset) from {ranges} force index ({table}__lease) where lease_until is not null),
        last_offset + 1
    )
)
from {ranges} order by id desc limit 1;
