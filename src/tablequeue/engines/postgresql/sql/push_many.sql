-- Push a batch of messages in one statement, in the order of the array: all of them, or none.
-- Returns the ids, and as in push, whether waiting consumers must be notified from another connection.
-- Locks: none that another transaction waits for; NOTIFY's, as in push. A crash before the commit leaves nothing.
with pushed as (
    insert into {queue} (payload, headers, producer, priority, group_key, pushed_at, due_at, state{expires_at})
    select
        cast(payload as {payload_type}), cast(:headers as json), cast(:producer as text),
        cast(:priority as integer), cast(:group as text), {now},
        coalesce(cast(:due as timestamptz), {now} + cast(:delay as float8) * interval '1 second'),
        case
            when coalesce(cast(:due as timestamptz), {now} + cast(:delay as float8) * interval '1 second') > {now}
                then '{pushed_scheduled}'
            else '{pushed_ready}'
        end{until}
    from unnest(cast(:payloads as {array_type}[])) with ordinality as batch (payload, place)
    order by place
    returning id
)
select id, {waited_for} as waited_for from pushed;
