-- Push a batch of messages in one statement, in the order of the array: all of them, or none.
-- Returns the ids, and as in push, whether waiting consumers must be notified from another connection.
-- Locks: none that another transaction waits for; NOTIFY's, as in push. A crash before the commit leaves nothing.
with pushed as (
    insert into {log} (pushed_at, producer, group_key, headers, payload)
    select
        {now}, cast(:producer as text), cast(:group as text), cast(:headers as json),
        cast(payload as {payload_type})
    from unnest(cast(:payloads as {array_type}[])) with ordinality as batch (payload, place)
    order by place
    returning id
)
select id, {waited_for} as waited_for from pushed;
