-- Fail the attempts on the messages of :ids that are held under :token: each is ready again after its seconds of
-- :delays, or a dead letter if this was its last attempt. The error is kept. Returns their states, and as in push,
-- whether consumers wait.
-- Index: the primary key. Locks: the rows. A crash leaves them in progress until their leases expire.
with failed as (
    update {queue} as message
    set state = case
            when attempts >= :max_attempts{in_time} then 'dead'{or_blocked}
            when given.delay > 0 then 'scheduled'
            else 'ready'
        end,
        due_at = case
            when attempts >= :max_attempts{in_time} then due_at
            else {now} + given.delay * interval '1 second'
        end,
        errors = {errors_and_one},
        token = null,
        lease_until = null{out_of_run}
    from unnest(cast(:ids as bigint[]), cast(:delays as float8[])) as given (id, delay)
    where message.id = given.id and token = cast(:token as uuid) and cancelled_at is null
    returning message.id, state
)
select id, state, case when state <> 'dead' then {waited_for} else false end as waited_for from failed;
