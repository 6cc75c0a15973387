-- Fail the attempt on message :id, held under :token: the message is ready again after :delay seconds, or a dead letter
-- if this was its last attempt. The error is kept. Returns the state, and as in push, whether consumers wait.
-- Index: the primary key. Locks: the row. A crash leaves the message in progress until its lease expires.
with failed as (
    update {queue}
    set state = case
            when attempts >= :max_attempts{in_time} then 'dead'
            when cast(:delay as float8) > 0 then 'scheduled'
            else 'ready'
        end,
        due_at = case
            when attempts < :max_attempts then {now} + cast(:delay as float8) * interval '1 second'
            else due_at
        end,
        errors = coalesce(errors, '[]') || jsonb_build_array(jsonb_build_object(
            'attempt', attempts, 'at', {now}, 'consumer', consumer, 'error', cast(:error as text)
        )),
        token = null,
        lease_until = null
    where id = :id and token = cast(:token as uuid)
    returning state
)
select state, case when state <> 'dead' then {waited_for} else false end as waited_for from failed;
