-- Delete the ranges that have no message any more at or after the offset :start, but for the first one, whose lock is
-- that of range_pump, and the last one, after which the next claim begins.
-- Index: the primary key. Locks: the rows. A crash leaves all or nothing.
delete {ranges}
from (select max(id) as id from {ranges}) as last
straight_join {ranges} on {ranges}.id > 1 and {ranges}.id < last.id
where {ranges}.last_offset < :start and {ranges}.lease_until is null;
