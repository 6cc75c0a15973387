-- Ranges of a topic's log: how a subscription claims, completes, extends and ends them.

-- name: range_hold
-- Lock the ranges under :token. Return the messages of :ids that they hold: those that have not left them.
-- Indexes: {table}__token, the index of the runs by last_id. Locks: the rows.
with held as materialized (
    select first_offset, last_offset, left_ids
    from {ranges}
    where token = cast(:token as uuid) and lease_until is not null
    for update
)
select ids.id
from unnest(cast(:ids as bigint[])) as ids (id)
cross join lateral (
    select first_id, first_offset + ids.id - first_id as message_offset
    from {runs} where last_id >= ids.id order by last_id limit 1
) as run
join held on message_offset between held.first_offset and held.last_offset
where run.first_id <= ids.id and (left_ids is null or ids.id <> all(left_ids));

-- name: range_detach
-- The messages of :ids, which ranges under :token hold, become rows of the subscription's queue: ready after :delay
-- seconds, or dead letters if :attempts is :max_attempts. Returns as in push, whether consumers wait.
-- A seek leaves no message both detached and in the log. Older versions did: then this is its state, unless a consumer
-- holds it detached.
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
), detached as (
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
select id, {waited_for} as waited_for from detached;

-- name: range_mark
-- Mark the messages of :ids, which ranges under :token hold, as left. A range is finished when all have left it.
-- Index: {table}__token. Locks: the rows. A crash leaves them in progress until the lease expires.
update {ranges} as held
set finished_at = {now},
    left_ids = case
        when messages > coalesce(cardinality(left_ids), 0) + cardinality(of_range.ids)
            then coalesce(left_ids, '{}') || of_range.ids
    end,
    lease_until = case
        when messages > coalesce(cardinality(left_ids), 0) + cardinality(of_range.ids) then lease_until
    end
from (
    select range.id, array_agg(ids.id) as ids
    from {ranges} as range
    join unnest(cast(:ids as bigint[])) as ids (id) on true
    cross join lateral (
        select first_offset + ids.id - first_id as message_offset
        from {runs} where last_id >= ids.id order by last_id limit 1
    ) as run
    where token = cast(:token as uuid) and lease_until is not null
        and message_offset between range.first_offset and range.last_offset
    group by range.id
) as of_range
where held.id = of_range.id;

-- name: range_expired
-- Up to :n ranges whose lease has expired. Index: {table}__lease. Locks: the rows; locked rows are skipped.
select id from {ranges} where lease_until <= {now} order by lease_until limit :n for update skip locked;

-- name: range_expire
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

-- name: range_pump
-- Move the next :n messages of the log to the queue of an ordered subscription. Returns their number. See
-- create_range_functions.
select {pump_range}(:n, {now});

-- name: range_claim
-- Claim the next range of up to :n messages under a new lease. With :held, first complete the range under that token.
-- Then, after a commit, read its messages: see create_range_functions. A connection of our own sends both together.
-- name: range_claim.claim
select {claim_range}(
    :n, cast(:token as uuid), cast(:consumer as text), :lease, {now}, :all_holes, cast(:held as uuid),
    cast(:number as integer), cast(:sum as bigint)
);
-- name: range_claim.read
select
    {claimed with errors = cast(null as jsonb)}
from {read_range}(cast(:token as uuid));

-- name: range_complete
-- Index: {table}__token. Locks: the row. A crash leaves it in progress until its lease expires.
update {ranges}
set finished_at = {now}, lease_until = null
where token = cast(:token as uuid) and lease_until is not null
    and messages = :number and ids_sum = :sum and left_ids is null
returning id;

-- name: range_extend
-- Extend the leases on the ranges under :token that hold messages of :ids: they end :lease seconds from now.
-- Returns these messages.
-- Indexes: {table}__token, the index of the runs by last_id. Locks: the rows. A crash leaves all extended, or none.
with held as materialized (
    select id, first_offset, last_offset, left_ids
    from {ranges}
    where token = cast(:token as uuid) and lease_until is not null
    for update
), found as materialized (
    select ids.id, held.id as range_id
    from unnest(cast(:ids as bigint[])) as ids (id)
    cross join lateral (
        select first_id, first_offset + ids.id - first_id as message_offset
        from {runs} where last_id >= ids.id order by last_id limit 1
    ) as run
    join held on message_offset between held.first_offset and held.last_offset
    where run.first_id <= ids.id and (left_ids is null or ids.id <> all(left_ids))
), extended as (
    update {ranges}
    set lease_until = {now} + cast(:lease as float8) * interval '1 second'
    where id in (select range_id from found)
    returning id, lease_until
)
select found.id, lease_until from found join extended on extended.id = range_id;
