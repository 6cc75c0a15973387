-- The position of a subscription and its progress: read it, and move it.

-- name: range_floor
-- On PostgreSQL, {log}__trim has the same look. Indexes: {table}__lease, the primary key. Locks: none.
select (select min(first_offset) from {ranges} where lease_until is not null), last_offset + 1
from {ranges} order by id desc limit 1;

-- name: range_position
-- Index: the primary key. Locks: none.
select last_offset + 1, id, consumer from {ranges} order by id desc limit 1;
