-- Delete the ranges that have no message any more at or after the offset :start, but for the last one, after which the
-- next claim begins. Index: the primary key. Locks: the rows. A crash leaves all or nothing.
delete from {ranges}
where last_offset < :start and lease_until is null and id < (select max(id) from {ranges});
