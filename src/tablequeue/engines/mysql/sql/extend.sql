-- Extend the lease on message :id, held under :token: it ends :lease seconds from now. Two round trips.
-- Index: the primary key. Locks: the row.
update {queue} set lease_until = {now} + interval :lease second where id = :id and token = :token;
select lease_until from {queue} where id = :id and token = :token;
