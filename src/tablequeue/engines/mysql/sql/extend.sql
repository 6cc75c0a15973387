-- Extend the leases on the messages of :ids that are held under :token: they end :lease seconds from now. One packet.
-- Index: the primary key. Locks: the rows. A crash leaves all of them extended, or none.
update {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
set lease_until = {now} + interval :lease second;
select message.id, lease_until
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token;
