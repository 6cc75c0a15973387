-- Delete the messages of :ids, which are in the other database by now, from those that were set aside.
-- Index: the primary key. Locks: the rows. A crash leaves them, and the next move finds that they are there.
delete message
from {given} straight_join {moving} as message force index (primary) on message.id = given.id;
