-- Fail the attempt on message :id, held under :token: the message is ready again after :delay seconds, or a dead letter
-- if this was its last attempt. The error is kept.
-- Index: the primary key. Locks: the database. A crash leaves the message in progress until its lease expires.
update {queue}
set state = case when attempts >= :max_attempts{in_time} then 'dead' when :delay > 0 then 'scheduled' else 'ready' end,
    due_at = case when attempts < :max_attempts then {now} + cast(:delay * 1000000 as integer) else due_at end,
    errors = json_insert(
        coalesce(errors, '[]'), '$[#]',
        json_object('attempt', attempts, 'at', {now}, 'consumer', consumer, 'error', :error)
    ),
    token = null,
    lease_until = null
where id = :id and token = :token
returning state;
