-- Push one message: ready at once, or scheduled if it is due later.
-- Locks: none that another reader or writer waits for. A crash before the commit leaves nothing.
insert into {queue} (payload, headers, producer, pushed_at, due_at, state)
values (
    cast(:payload as {payload_type}), cast(:headers as json), cast(:producer as text), {now},
    coalesce(cast(:due as timestamptz), {now} + cast(:delay as float8) * interval '1 second'),
    case
        when coalesce(cast(:due as timestamptz), {now} + cast(:delay as float8) * interval '1 second') > {now}
            then 'scheduled'
        else 'ready'
    end
)
returning id;
