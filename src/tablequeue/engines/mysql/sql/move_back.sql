-- Move those of :ids that wait in {target}, and came from this queue, back: with a new id, all attempts before them and
-- the keys that they had. The first statement finds and locks them, the others move them.
-- Index: the primary key. Locks: the rows; locked rows are skipped. A crash leaves all moved, or none.
select message.id
from {given} straight_join {target} as message force index (primary) on message.id = given.id
where state in ('ready', 'scheduled', 'blocked', 'dead')
for update skip locked;
insert into {queue} (
    {queue_row without id token lease_until}
)
select
    {queue_row without id token lease_until with
        state = '{pushed_ready}'
        attempts = 0
        due_at = {redriven_due}
        dedup_key = {origin_key}}
from {given} straight_join {target} as message force index (primary) on message.id = given.id
order by message.id;
delete {target}
from {given} straight_join {target} force index (primary) on {target}.id = given.id;
