-- Move those of :ids that no consumer holds, dead letters among them, from {source} to this queue, in the order of
-- their ids. They keep all but their ids and states: what is due later is scheduled, and a dead letter stays one.
-- A duplicate-key error if a message of this queue has the key of one. The new ids are found by :token, above the first
-- one: those of an INSERT ... SELECT need not be consecutive.
-- Indexes: the primary keys. Locks: the rows. In one transaction: a crash leaves each message in one of the queues.
select message.id
from {given} straight_join {source} as message force index (primary) on message.id = given.id
where state in ('ready', 'scheduled', 'blocked', 'dead')
order by message.id
for update;
insert into {queue} (
    token, state,
    {queue_row without id state token lease_until}{expires_at}
)
select
    :token,
    case
        when state = 'dead' then 'dead'
        when due_at > {now} then '{pushed_scheduled}'
        else '{pushed_ready}'
    end,
    {queue_row without id state token lease_until with
        due_at = {moved_due}
        group_key = {moved_group}}{expires_at}
from {given} straight_join {source} as message force index (primary) on message.id = given.id
order by message.id;
select id from {queue} force index (primary) where id >= last_insert_id() and token = :token order by id;
update {queue} force index (primary) set token = null where id >= last_insert_id() and token = :token;
delete message
from {given} straight_join {source} as message force index (primary) on message.id = given.id;
