-- Read the messages of :ids that are in progress under :token. Index: the primary key. Locks: none.
select
    {live_columns with id = message.id}
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
order by message.id;
