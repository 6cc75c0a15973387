-- Extend the leases on the messages of :ids that are held under :token: they end :lease seconds from now.
-- Index: the primary key. Locks: the rows. A crash leaves all of them extended, or none.
update {queue}
set lease_until = {now} + cast(:lease as float8) * interval '1 second'
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
returning id, lease_until;
