-- Extend the leases on the messages of :ids that are held under :token: they end :lease seconds from now.
-- Index: the primary key. Locks: the database. A crash leaves all of them extended, or none.
update {queue}
set lease_until = {now} + cast(:lease * 1000000 as integer)
where id in (select value from json_each(:ids)) and token = :token
returning id, lease_until;
