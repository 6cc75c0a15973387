-- Up to :n messages that are due, and as many whose lease has expired, become ready; the latter become dead
-- letters instead if their last attempt is spent. A lost lease is an error of the attempt. One that was told to stop
-- ends as cancelled.
-- Those of up to ten packs, too, whose lease has expired: they are rows of the queue again.
-- Only those of the last :since_sweep seconds, if given: dead entries before them are not walked again (walks.py).
-- Indexes: {table}__scheduled, {table}__in_progress, {table}__packs_lease. Locks: the rows; locked rows are skipped. A
-- crash leaves all or nothing.
with due as (
    select id from {queue}
    where state = 'scheduled' and due_at <= {now} and due_at > {since_sweep}
    order by due_at
    limit :n
    for update skip locked
), expired as (
    select id, cancelled_at from {queue}
    where state = 'in_progress' and lease_until <= {now} and lease_until > {since_sweep}
    order by lease_until
    limit :n
    for update skip locked
), moved as (
    update {queue}
    set state = case
            when state = 'in_progress' and attempts >= :max_attempts{in_time} then 'dead'{or_blocked}
            else 'ready'
        end,
        errors = case
            when state = 'in_progress' then {errors_and_lost}
            else errors
        end,
        token = null,
        lease_until = null{out_of_run}
    where id = any(array(select id from due union all select id from expired where cancelled_at is null))
    returning id
), cancelled as (
    delete from {queue}
    where id = any(array(select id from expired where cancelled_at is not null))
    returning *, {errors_and_lost} as all_errors
-- [keep]
), kept as (
    insert into {history} (
        {history_row without token},
        outcome
    )
    select
        {history_row without token with
            finished_at = {now}
            errors = all_errors},
        'cancelled'
    from cancelled
-- [end]
), pack as (
    delete from {packs}
    where token = any(array(
        select token from {packs} where lease_until <= {now} order by lease_until limit 10 for update skip locked
    ))
    returning *
), unpacked as (
    insert into {queue} (
        id, state, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, producer, consumer, headers,
        errors, payload
    )
    select
        message.id, case when :max_attempts <= 1 then 'dead' else 'ready' end, 1, message.priority, message.pushed_at,
        message.due_at, pack.popped_at, pack.popped_at, message.producer, pack.consumer, message.headers,
        jsonb_build_array(jsonb_build_object(
            'attempt', 1, 'at', {now}, 'consumer', pack.consumer, 'error', 'lease expired'
        )),
        message.payload
    from pack, {pack_messages}
    returning id
)
select id from moved
union all
select id from cancelled
union all
select id from unpacked;
