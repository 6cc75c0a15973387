-- Those of :ids that are dead letters become ready, with no attempts made. Their errors stay.
-- Index: the primary key. Locks: the rows. A crash leaves all or nothing.
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and state = 'dead'
for update;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry};
