-- Complete the messages of :ids that were delivered at most once under :token.
-- The first statement tells which of several they are. One alone is known by the number of rows: one round trip.
-- Index: the primary key of the history. Locks: the rows. A crash leaves all of them completed, or none.
select message.id
from {given} straight_join {history} as message force index (primary) on message.id = given.id and token = :token
for update;
update {given} straight_join {history} as message force index (primary) on message.id = given.id and token = :token
set finished_at = {now}, token = null;
