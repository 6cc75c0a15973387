-- The messages of :ids, which ranges under :token hold, become rows of the subscription's queue: ready after :delay
-- seconds, or dead letters if :attempts is :max_attempts.
-- Index: {table}__token. Locks: the database. In one transaction with range_mark.
-- A seek leaves no message both apart and in the log. Older versions did: then this is its state now, unless a consumer
-- holds it apart.
delete from {history} where id in (select value from json_each(:ids));
insert into {queue} (
    id, state, attempts, pushed_at, due_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors,
    payload
)
select
    log.id,
    case when :attempts >= :max_attempts then 'dead' when :delay > 0 then 'scheduled' else 'ready' end,
    :attempts, log.pushed_at,
    case when :attempts < :max_attempts and :delay > 0 then {now} + cast(:delay * 1000000 as integer) end,
    popped_at, popped_at, log.group_key, log.producer, consumer, log.headers,
    case
        when :error is not null then json_array(
            json_object('attempt', :attempts, 'at', {now}, 'consumer', consumer, 'error', :error)
        )
    end,
    log.payload
from {ranges} as ranges
join {log} as log on log.id between first_offset and last_offset
where token = :token and lease_until is not null and log.id in (select value from json_each(:ids))
on conflict (id) do update set
    state = excluded.state, attempts = excluded.attempts, due_at = excluded.due_at, errors = excluded.errors
where {queue}.state <> 'in_progress';
update {ranges}
set apart_ids = (
    select json_group_array(value) from (
        select value from json_each(coalesce(apart_ids, '[]'))
        union all
        select value from json_each(:ids) where value between first_offset and last_offset
    )
)
where token = :token and lease_until is not null
    and exists (select 1 from json_each(:ids) where value between first_offset and last_offset);
