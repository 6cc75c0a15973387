-- Push one of many messages, run once for each inside one transaction: all of them are pushed, or none.
-- No other writer can be inside that transaction, so the ids are consecutive and end at last_insert_rowid().
insert into {queue} (payload, headers, producer, priority, group_key, pushed_at, due_at, state)
values (
    :payload, :headers, :producer, :priority, :group, {now},
    coalesce(:due, {now} + cast(:delay * 1000000 as integer)),
    case
        when coalesce(:due, {now} + cast(:delay * 1000000 as integer)) > {now} then '{pushed_scheduled}'
        else '{pushed_ready}'
    end
);
