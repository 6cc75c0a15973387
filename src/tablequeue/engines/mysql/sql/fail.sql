-- Fail the attempt on message :id, held under :token: the message is ready again after :delay seconds, or a dead letter
-- if this was its last attempt. The error is kept. LAST_INSERT_ID remembers the new state for fail_state. A look at the
-- row would come too late, because another consumer may have claimed the message meanwhile.
-- Index: the primary key. Locks: the row. A crash leaves the message in progress until its lease expires.
update {queue}
set state = elt(
        last_insert_id(case when attempts >= :max_attempts{in_time} then 3 when :delay > 0 then 2 else 1 end),
        'ready', 'scheduled', 'dead'
    ),
    due_at = case when attempts < :max_attempts then {now} + interval :delay second else due_at end,
    errors = json_array_append(coalesce(errors, '[]'), '$', json_object(
        'attempt', attempts, 'at', cast({now} as char), 'consumer', consumer, 'error', :error
    )),
    token = null,
    lease_until = null
where id = :id and token = :token;
