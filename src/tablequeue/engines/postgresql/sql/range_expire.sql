-- The messages that have not left range :id, whose lease has expired, become rows of the subscription's queue: ready,
-- or dead letters if one attempt was all they had. The range is not in progress any more.
-- Indexes: the primary keys. Locks: the rows. A crash leaves all or nothing.
with expired as (
    select id, first_offset, last_offset, left_ids, popped_at, consumer from {ranges} where id = :id
), lost as materialized (
    select log.*, popped_at, consumer
    from expired
    join {runs} as run
        on run.first_offset >= (select max(first_offset) from {runs} where first_offset <= expired.first_offset)
            and run.first_offset <= expired.last_offset
    join {log} as log on log.id
        between run.first_id + greatest(expired.first_offset - run.first_offset, 0)
        and least(run.last_id, run.first_id + expired.last_offset - run.first_offset)
    where left_ids is null or log.id <> all(left_ids)
), in_history as (
    delete from {history} where id = any(array(select id from lost))
), closed as (
    update {ranges} set lease_until = null where id = :id
)
insert into {queue} as there (
    id, state, attempts, pushed_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors, payload
)
select
    id, case when :max_attempts <= 1 then 'dead' else 'ready' end, 1, pushed_at, popped_at, popped_at, group_key,
    producer, consumer, headers,
    jsonb_build_array(jsonb_build_object('attempt', 1, 'at', {now}, 'consumer', consumer, 'error', 'lease expired')),
    payload
from lost
on conflict (id) do update set
    state = excluded.state, attempts = excluded.attempts, errors = excluded.errors
where there.state <> 'in_progress';
