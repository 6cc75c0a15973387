-- What a subscription still needs: the first offset of its ranges in progress, null if there is none; and the one at
-- which its next claim begins.
-- Indexes: {table}__lease, {table}__last. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it is refused
-- (error 1222) while a transaction is finishing a range, which may be rolled back; topics.py says what then.
select top (1)
    (select min(held.first_offset) from {ranges} as held with (nowait) where held.lease_until is not null) as first,
    last_offset + 1 as position
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
