-- Push one message to the log. Returns the id, and whether waiting consumers must be notified from another connection.
-- Locks: none that another transaction waits for; NOTIFY's, as in push. A crash before the commit leaves nothing.
with pushed as (
    insert into {log} (pushed_at, producer, group_key, headers, payload)
    values (
        {now}, cast(:producer as text), cast(:group as text), cast(:headers as json),
        cast(:payload as {payload_type})
    )
    returning id
)
select id, {waited_for} as waited_for from pushed;
