-- Finish those of :ids that are held under :token: they move to the history.
-- Index: the primary key. Locks: the database. Both statements commit together: a crash finishes all or none.
insert into {history} (
    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
    consumer, headers, errors, payload
)
select
    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, {now}, group_key, dedup_key, producer,
    consumer, headers, errors, payload
from {queue}
where id in (select value from json_each(:ids)) and token = :token;
delete from {queue}
where id in (select value from json_each(:ids)) and token = :token
returning id;
