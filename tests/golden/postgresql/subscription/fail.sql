-- A word after a colon is a parameter; with --values there are examples, for psql.

-- Lock the ranges under :token. Return the messages of :ids that they hold: those that have not left them.
-- Indexes: tq_events__s1__token, the index of the runs by last_id. Locks: the rows.
with held as materialized (
    select first_offset, last_offset, left_ids
    from tq_events__s1__ranges
    where token = cast(:token as uuid) and lease_until is not null
    for update
)
select ids.id
from unnest(cast(:ids as bigint[])) as ids (id)
cross join lateral (
    select first_id, first_offset + ids.id - first_id as message_offset
    from tq_events__runs where last_id >= ids.id order by last_id limit 1
) as run
join held on message_offset between held.first_offset and held.last_offset
where run.first_id <= ids.id and (left_ids is null or ids.id <> all(left_ids));

-- The messages of :ids, which ranges under :token hold, become rows of the subscription's queue: ready after :delay
-- seconds, or dead letters if :attempts is :max_attempts. Returns as in push, whether consumers wait.
-- A seek may have brought back a message that the queue or its history has already: this is its state now.
-- Indexes: tq_events__s1__token, the primary keys. Locks: the rows. In one transaction with range_mark.
with there as (
    delete from tq_events__s1_history where id = any(cast(:ids as bigint[]))
), left_ones as materialized (
    select ids.id, range.id as range_id, popped_at, consumer
    from tq_events__s1__ranges as range
    join unnest(cast(:ids as bigint[])) as ids (id) on true
    cross join lateral (
        select first_offset + ids.id - first_id as message_offset
        from tq_events__runs where last_id >= ids.id order by last_id limit 1
    ) as run
    where token = cast(:token as uuid) and lease_until is not null
        and message_offset between range.first_offset and range.last_offset
), counted as (
    update tq_events__s1__ranges as range
    set apart = apart + (select count(*) from left_ones where range_id = range.id)
    where token = cast(:token as uuid) and lease_until is not null
), apart as (
    insert into tq_events__s1 (
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
                then coalesce(cast(:now as timestamptz), statement_timestamp()) + cast(:delay as float8) * interval '1 second'
        end,
        popped_at, popped_at, log.group_key, log.producer, consumer, log.headers,
        case
            when cast(:error as text) is not null then jsonb_build_array(jsonb_build_object(
                'attempt', cast(:attempts as integer), 'at', coalesce(cast(:now as timestamptz), statement_timestamp()), 'consumer', consumer, 'error', cast(:error as text)
            ))
        end,
        log.payload
    from left_ones
    join tq_events as log on log.id = left_ones.id
    on conflict (id) do update set
        state = excluded.state, attempts = excluded.attempts, due_at = excluded.due_at, errors = excluded.errors,
        token = null, lease_until = null
    returning id
)
select id, (select case
    when :within and pg_advisory_xact_lock_shared(hashtextextended('tq_events', 8318836323)) is null then null
    when pg_try_advisory_lock(hashtextextended('tq_events', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_events', 8318836321))
    when :within then true
    when not pg_try_advisory_xact_lock(hashtextextended('tq_events', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)) then false
    else pg_notify('tq_events', '') is null end) as waited_for from apart;

-- Mark the messages of :ids, which ranges under :token hold, as left. A range is finished when all have left it.
-- Index: tq_events__s1__token. Locks: the rows. A crash leaves them in progress until the lease expires.
update tq_events__s1__ranges as held
set left_ids = coalesce(left_ids, '{}') || of_range.ids,
    finished_at = case when messages = coalesce(cardinality(left_ids), 0) + cardinality(of_range.ids) then coalesce(cast(:now as timestamptz), statement_timestamp()) end,
    lease_until = case
        when messages > coalesce(cardinality(left_ids), 0) + cardinality(of_range.ids) then lease_until
    end
from (
    select range.id, array_agg(ids.id) as ids
    from tq_events__s1__ranges as range
    join unnest(cast(:ids as bigint[])) as ids (id) on true
    cross join lateral (
        select first_offset + ids.id - first_id as message_offset
        from tq_events__runs where last_id >= ids.id order by last_id limit 1
    ) as run
    where token = cast(:token as uuid) and lease_until is not null
        and message_offset between range.first_offset and range.last_offset
    group by range.id
) as of_range
where held.id = of_range.id;

-- Fail the attempt on message :id, held under :token: the message is ready again after :delay seconds, or a dead letter
-- if this was its last attempt. The error is kept. Returns the state, and as in push, whether consumers wait.
-- Index: the primary key. Locks: the row. A crash leaves the message in progress until its lease expires.
with failed as (
    update tq_events__s1
    set state = case
            when attempts >= :max_attempts then 'dead'
            when cast(:delay as float8) > 0 then 'scheduled'
            else 'ready'
        end,
        due_at = case
            when attempts < :max_attempts then coalesce(cast(:now as timestamptz), statement_timestamp()) + cast(:delay as float8) * interval '1 second'
            else due_at
        end,
        errors = coalesce(errors, '[]') || jsonb_build_array(jsonb_build_object(
            'attempt', attempts, 'at', coalesce(cast(:now as timestamptz), statement_timestamp()), 'consumer', consumer, 'error', cast(:error as text)
        )),
        token = null,
        lease_until = null
    where id = :id and token = cast(:token as uuid)
    returning state
)
select state, case when state <> 'dead' then (select case
    when :within and pg_advisory_xact_lock_shared(hashtextextended('tq_events', 8318836323)) is null then null
    when pg_try_advisory_lock(hashtextextended('tq_events', 8318836321)) then not pg_advisory_unlock(hashtextextended('tq_events', 8318836321))
    when :within then true
    when not pg_try_advisory_xact_lock(hashtextextended('tq_events', 8318836322) # cast(extract(epoch from statement_timestamp()) * 100 as bigint)) then false
    else pg_notify('tq_events', '') is null end) else false end as waited_for from failed;
