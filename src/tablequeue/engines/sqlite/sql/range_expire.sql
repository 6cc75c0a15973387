-- The messages that have not left range :id, whose lease has expired, become rows of the subscription's queue: ready,
-- or dead letters if one attempt was all they had. The range is not in progress any more.
-- Index: the primary keys. Locks: the database. A crash leaves all or nothing.
delete from {history}
where id in (
    select log.id
    from {ranges} as ranges
    join {log} as log on log.id between first_offset and last_offset
    where ranges.id = :id and log.id not in (select value from json_each(coalesce(left_ids, '[]')))
);
insert into {queue} (
    id, state, attempts, pushed_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors, payload
)
select
    log.id, case when :max_attempts <= 1 then 'dead' else 'ready' end, 1, log.pushed_at, popped_at, popped_at,
    log.group_key, log.producer, consumer, log.headers,
    json_array(json_object('attempt', 1, 'at', {now}, 'consumer', consumer, 'error', 'lease expired')),
    log.payload
from {ranges} as ranges
join {log} as log on log.id between first_offset and last_offset
where ranges.id = :id and log.id not in (select value from json_each(coalesce(left_ids, '[]')))
on conflict (id) do update set
    state = excluded.state, attempts = excluded.attempts, errors = excluded.errors
where {queue}.state <> 'in_progress';
update {ranges} set lease_until = null where id = :id;
