-- What a subscription still needs: the first offset of its ranges in progress, null if there is none; and the one at
-- which its next claim begins.
-- Indexes: {table}__lease, the primary key. Locks: none.
select
    (select min(first_offset) from {ranges} force index ({table}__lease) where lease_until is not null),
    last_offset + 1
from {ranges} order by id desc limit 1;
