-- Move those of :ids that no consumer holds, dead letters among them, from {source} to this queue, in the order of
-- their ids. They keep all but their ids and states: what is due later is scheduled, and a dead letter stays one.
-- A new id is missing for each whose key a message of this queue has; then the caller rolls back. Ids are drawn in the
-- order of the select.
-- Index: the primary key. Locks: the rows; a key waits for another transaction that is pushing the same one. A message
-- that is claimed meanwhile stays. A crash leaves each message in one of the queues.
with moved as (
    delete from {source}
    where id = any(cast(:ids as bigint[])) and state in ('ready', 'scheduled', 'blocked', 'dead')
    returning *
), pushed as (
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
    from moved
    order by id
    on conflict (dedup_key) where dedup_key is not null do nothing
    returning id
)
select id, false as is_new from moved union all select id, true from pushed;
