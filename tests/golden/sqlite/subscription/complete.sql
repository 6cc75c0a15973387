-- A word after a colon is a parameter; with --values there are examples, for sqlite3.

-- Complete the range that is held under :token: all :number messages of it, which have this :sum of ids.
-- Index: tq_events__s1__token. Locks: the database. A crash leaves it in progress until its lease expires.
update tq_events__s1__ranges
set finished_at = coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), lease_until = null
where token = :token and lease_until is not null and messages = :number and ids_sum = :sum and left_ids is null
returning id;

-- Complete the messages of :ids that are held under :token: they move to the history.
-- Index: the primary key. Locks: the database. Both statements commit together: a crash leaves all of them completed,
-- or none.
insert into tq_events__s1_history (
    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
    consumer, headers, errors, payload
)
select
    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000), group_key, dedup_key, producer,
    consumer, headers, errors, payload
from tq_events__s1
where id in (select value from json_each(:ids)) and token = :token;
delete from tq_events__s1
where id in (select value from json_each(:ids)) and token = :token
returning id;
