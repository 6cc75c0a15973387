-- Extend the lease on message :id, held under :token: it ends :lease seconds from now.
-- Index: the primary key. Locks: the row.
update {queue}
set lease_until = {now} + cast(:lease as float8) * interval '1 second'
where id = :id and token = cast(:token as uuid)
returning lease_until;
