-- Extend the lease on message :id, held under :token: it ends :lease seconds from now.
-- Index: the primary key. Locks: the database.
update {queue}
set lease_until = {now} + cast(:lease * 1000000 as integer)
where id = :id and token = :token
returning lease_until;
