-- Finish those of :ids that are held under :token: they move to the history in this one statement.
-- Index: the primary key. Locks: the rows. A crash finishes all or none.
with finished as (
    delete from {queue}
    where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
    returning *
)
insert into {history} (
    id, payload, headers, attempts, pushed_at, due_at, first_popped_at, popped_at, finished_at, producer, consumer,
    errors
)
select
    id, payload, headers, attempts, pushed_at, due_at, first_popped_at, popped_at, {now}, producer, consumer,
    errors
from finished
returning id;
