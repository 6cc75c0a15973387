-- The messages of :ids, which ranges under :token hold, become rows of the subscription's queue: ready after :delay
-- seconds, or dead letters if :attempts is :max_attempts. Returns as in push, whether consumers wait.
-- A seek leaves no message both apart and in the log. Older versions did: then this is its state now, unless a consumer
-- holds it apart.
-- Indexes: {table}__token, the primary keys. Locks: the rows. In one transaction with range_mark.
-- `limit` looks each message up: a plan that was made when the log was small would read all of it for a join.
with in_history as (
    delete from {history} where id = any(cast(:ids as bigint[]))
), left_ones as materialized (
    select ids.id, range.id as range_id, popped_at, consumer
    from {ranges} as range
    join unnest(cast(:ids as bigint[])) as ids (id) on true
    cross join lateral (
        select first_offset + ids.id - first_id as message_offset
        from {runs} where last_id >= ids.id order by last_id limit 1
    ) as run
    where token = cast(:token as uuid) and lease_until is not null
        and message_offset between range.first_offset and range.last_offset
), noted as (
    update {ranges} as range
    set apart_ids = coalesce(apart_ids, '{}') || array(select id from left_ones where range_id = range.id)
    where id in (select range_id from left_ones)
), apart as (
    insert into {queue} as there (
        id, state, attempts, pushed_at, due_at, first_popped_at, popped_at, group_key, producer, consumer, headers,
        errors, payload
    )
    select
        log.id,
        case
            when :attempts >= :max_attempts then 'dead' when cast(:delay as float8) > 0 then 'scheduled' else 'ready'
        end,
        :attempts, log.pushed_at,
        case
            when :attempts < :max_attempts and cast(:delay as float8) > 0
                then {now} + cast(:delay as float8) * interval '1 second'
        end,
        popped_at, popped_at, log.group_key, log.producer, consumer, log.headers,
        case
            when cast(:error as text) is not null then jsonb_build_array(jsonb_build_object(
                'attempt', cast(:attempts as integer), 'at', {now}, 'consumer', consumer, 'error', cast(:error as text)
            ))
        end,
        log.payload
    from left_ones
    cross join lateral (select * from {log} where id = left_ones.id limit 1) as log
    on conflict (id) do update set
        state = excluded.state, attempts = excluded.attempts, due_at = excluded.due_at, errors = excluded.errors
    where there.state <> 'in_progress'
    returning id
)
select id, {waited_for} as waited_for from apart;
