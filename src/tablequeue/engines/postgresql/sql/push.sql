-- Push one message: it is ready, or scheduled if it is due later. Nothing is pushed if a live message has its :key.
-- Returns the id, and whether waiting consumers must be notified from another connection; see notify.
-- Locks: none that another transaction waits for; and, if consumers wait, that of NOTIFY, for the length of the commit.
-- A crash before the commit leaves nothing.
with pushed as (
    insert into {queue} (
        payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at}
    )
    values (
        cast(:payload as {payload_type}), cast(:headers as json), cast(:producer as text),
        cast(:priority as integer), cast(:group as text), cast(:key as text), {now},
        coalesce(cast(:due as timestamptz), {now} + cast(:delay as float8) * interval '1 second'),
        case
            when coalesce(cast(:due as timestamptz), {now} + cast(:delay as float8) * interval '1 second') > {now}
                then '{pushed_scheduled}'
            else '{pushed_ready}'
        end{until}
    )
    on conflict (dedup_key) where dedup_key is not null do nothing
    returning id
)
select id, {waited_for} as waited_for from pushed;
