-- The messages of :ids, which range :id holds, become rows of the subscription's queue: ready after :delay seconds, or
-- dead letters if :attempts is :max_attempts.
-- A seek leaves no message both apart and in the log. Older versions did: then this is its state now, unless a consumer
-- holds it apart.
-- Indexes: the primary keys. Locks: the rows. In one transaction with range_mark or range_expire.
delete {history}
from {given} straight_join {history} force index (primary) on {history}.id = given.id;
insert into {queue} (
    id, state, attempts, pushed_at, due_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors,
    payload
)
select
    log.id,
    case when :attempts >= :max_attempts then 'dead' when :delay > 0 then 'scheduled' else 'ready' end,
    :attempts, log.pushed_at,
    case when :attempts < :max_attempts and :delay > 0 then {now} + interval :delay second end,
    held.popped_at, held.popped_at, log.group_key, log.producer, held.consumer, log.headers,
    case
        when :error is not null then json_array(json_object(
            'attempt', :attempts, 'at', cast({now} as char), 'consumer', held.consumer, 'error', :error
        ))
    end,
    log.payload
from {ranges} as held
straight_join {given}
straight_join {log} as log force index (primary) on log.id = given.id
where held.id = :id
on duplicate key update
    attempts = if({queue}.state = 'in_progress', {queue}.attempts, values(attempts)),
    due_at = if({queue}.state = 'in_progress', {queue}.due_at, values(due_at)),
    errors = if({queue}.state = 'in_progress', {queue}.errors, values(errors)),
    state = if({queue}.state = 'in_progress', {queue}.state, values(state));
