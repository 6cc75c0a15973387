-- The position of a subscription and its progress: read it, and move it.

-- name: range_floor
-- What a subscription still needs: the first offset of its ranges in progress, null if there is none; and the one at
-- which its next claim begins. On PostgreSQL, {log}__trim has the same look.
-- Indexes: {table}__lease, the primary key. Locks: none.
select (select min(first_offset) from {ranges} where lease_until is not null), last_offset + 1
from {ranges} order by id desc limit 1;

-- name: range_position
-- The offset at which the next claim of a subscription begins; and of the last range or seek, its number and its
-- consumer, null of a seek. Index: the primary key. Locks: none.
select last_offset + 1, id, consumer from {ranges} order by id desc limit 1;
