-- Push what the :attempts of the write :write staged, in the order of their parts, all at once. A message whose key is
-- taken, even by an earlier one of them, is left out; the caller counts the others. See publish, if none has a key.
-- Index: {table}__key. Locks: a row waits for another transaction that is pushing the same key.
-- One transaction with writer_advance: a crash publishes none.
insert into {queue} (
    payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at}
)
select
    payload, headers, cast(:producer as text), coalesce(priority, 0),
    coalesce(group_key, cast(:group as text)), dedup_key, {now}, coalesce(due_at, {default_due}),
    case when due_at > {now} then '{pushed_scheduled}' else '{pushed_ready}' end{until}
from (
    select
        unnest(payloads) as payload, unnest(headers) as headers, unnest(priorities) as priority,
        unnest(groups) as group_key, unnest(keys) as dedup_key, unnest(dues) as due_at
    from (
        select * from {staged}
        where write_id = :write and attempt = any(:attempts)
        order by part, place
    ) as parts
) as message
on conflict (dedup_key) where dedup_key is not null do nothing;
