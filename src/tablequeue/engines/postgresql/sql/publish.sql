-- Push what the :attempts of the write :write staged, in the order of their parts, all at once. None has a key.
-- Index: none. Locks: none that another transaction waits for.
-- Not publish_keyed: its on conflict takes a lock and a record of the log for each row, an eighth of the time and of
-- the log. Half of what it takes are the two indexes by id, and a fifth are the ids.
-- One transaction with writer_advance: a crash publishes none.
insert into {queue} (
    payload, headers, producer, priority, group_key, pushed_at, due_at, state{expires_at}
)
select
    payload, headers, cast(:producer as text), coalesce(priority, 0),
    coalesce(group_key, cast(:group as text)), {now}, coalesce(due_at, {default_due}),
    case when due_at > {now} then '{pushed_scheduled}' else '{pushed_ready}' end{until}
from (
    select
        unnest(payloads) as payload, unnest(headers) as headers, unnest(priorities) as priority,
        unnest(groups) as group_key, unnest(dues) as due_at
    from (
        select * from {staged}
        where write_id = :write and attempt = any(:attempts)
        order by part, place
    ) as parts
) as message;
