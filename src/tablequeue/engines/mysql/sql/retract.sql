-- Find those of the new heads :ids whose group is closed by a run that began after promote looked, or that are behind a
-- message of an open run. Block them again.
-- Since the index has the new head, no other run can begin before the commit.
-- Indexes: the primary key, {table}__front. Locks: the heads, which promote has locked.
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
straight_join {queue} as there force index ({table}__front)
    on there.front = message.group_key and there.in_run <> 0 and there.in_run > -message.id;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = 'blocked'
where state in ('ready', 'scheduled');
