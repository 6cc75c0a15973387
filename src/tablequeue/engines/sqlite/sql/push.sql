-- Push one message: ready at once, or scheduled if it is due later.
-- Locks: the database, for the length of the statement. A crash before the commit leaves nothing.
insert into {queue} (payload, headers, producer, pushed_at, due_at, state)
values (
    :payload, :headers, :producer, {now},
    coalesce(:due, {now} + cast(:delay * 1000000 as integer)),
    case
        when coalesce(:due, {now} + cast(:delay * 1000000 as integer)) > {now} then 'scheduled'
        else 'ready'
    end
)
returning id;
