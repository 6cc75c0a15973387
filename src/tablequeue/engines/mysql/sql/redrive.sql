-- Up to :n dead letters with an id above :after become ready, with no attempts made. Their errors stay. Found, locked
-- by their ids (locked ones are skipped), changed.
-- Index: {table}__state.
-- A crash leaves all of a batch done, or nothing.
select id from {queue} force index ({table}__state)
where state = 'dead' and sweep_at is null and id > :after
order by id
limit :n;
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and state = 'dead'
for update skip locked;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id
set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry};
