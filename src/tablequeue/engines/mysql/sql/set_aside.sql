-- Set the messages of :ids, which waiting has locked, aside under the token :token, with all that they have.
-- Index: the primary key. Locks: the rows. In one transaction: a crash leaves all in the queue, or all aside.
insert into {moving} (
    {queue_row without id lease_until}, id, expires_at
)
select
    {queue_row without id lease_until with token = :token}, message.id, expires_at
from {given} straight_join {queue} as message force index (primary) on message.id = given.id;
delete message
from {given} straight_join {queue} as message force index (primary) on message.id = given.id;
