-- Pushes into a queue.

-- name: push
-- Nothing is pushed if a live message has its :key. Locks: the database, for the length of the statement.
-- A crash before the commit leaves nothing.
insert into {queue} (
    payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{extra}
)
values (
    :payload, :headers, :producer, :priority, :group, :key, {now},
    coalesce(:due, {now} + cast(:delay * 1000000 as integer)),
    case
        when coalesce(:due, {now} + cast(:delay * 1000000 as integer)) > {now} then '{pushed_scheduled}'
        else '{pushed_ready}'
    end{until}{in_batch}
)
on conflict (dedup_key) where dedup_key is not null do nothing
returning id;

-- name: push_many
-- Push several messages in their order, some in a statement: (:payload) stands there once for each of them.
-- All statements are in one transaction: all are pushed, or none. No other writer can be inside it, so the ids are
-- consecutive and end at last_insert_rowid(). Locks: the database. A crash before the commit leaves nothing.
insert into {queue} (payload, headers, producer, priority, group_key, pushed_at, due_at, state{extra})
select
    column1, :headers, :producer, :priority, :group, {now},
    coalesce(:due, {now} + cast(:delay * 1000000 as integer)),
    case
        when coalesce(:due, {now} + cast(:delay * 1000000 as integer)) > {now} then '{pushed_scheduled}'
        else '{pushed_ready}'
    end{until}{in_batch}
from (values (:payload));
