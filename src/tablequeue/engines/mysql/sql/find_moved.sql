-- Those of :ids that have come from other databases: the id that each had, its token, and its id here.
-- Index: the primary key. Locks: none.
select message.id, message.token, message.new_id
from {given} straight_join {moved} as message force index (primary) on message.id = given.id;
