-- Fail the attempts on the messages of :delays, pairs of an id and seconds, that are held under :token: each is ready
-- again after its delay, or a dead letter if this was its last attempt. The error is kept.
-- Index: the primary key. Locks: the database. A crash leaves them in progress until their leases expire.
update {queue} as message
set state = case
        when attempts >= :max_attempts{in_time} then 'dead'{or_blocked}
        when given.delay > 0 then 'scheduled'
        else 'ready'
    end,
    due_at = case
        when attempts >= :max_attempts{in_time} then due_at
        else {now} + cast(given.delay * 1000000 as integer)
    end,
    errors = {errors_and_one},
    token = null,
    lease_until = null{out_of_run}
from (select json_extract(value, '$[0]') as id, json_extract(value, '$[1]') as delay from json_each(:delays)) as given
where message.id = given.id and token = :token and cancelled_at is null
returning id, state;
