-- Those of the messages of :ids that are in progress and were told to stop. Index: the primary key. Locks: none.
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where cancelled_at is not null;
