-- Move those of :ids that no consumer holds, dead letters among them, from {source} to this queue, in the order of
-- their ids. They keep all but their ids and states: what is due later is scheduled, and a dead letter stays one.
-- A row less is returned for each whose key a message of this queue has; then the caller rolls back.
-- Index: the primary key. Locks: the database. In one transaction: a crash leaves each message in one of the queues.
select id from {source}
where id in (select value from json_each(:ids)) and state in ('ready', 'scheduled', 'blocked', 'dead')
order by id;
insert into {queue} (
    state,
    {queue_row without id state token lease_until}{expires_at}
)
select
    case
        when state = 'dead' then 'dead'
        when due_at > {now} then '{pushed_scheduled}'
        else '{pushed_ready}'
    end,
    {queue_row without id state token lease_until with
        due_at = {moved_due}
        group_key = {moved_group}}{expires_at}
from {source}
where id in (select value from json_each(:ids))
order by id
on conflict (dedup_key) where dedup_key is not null do nothing
returning id;
delete from {source} where id in (select value from json_each(:ids));
