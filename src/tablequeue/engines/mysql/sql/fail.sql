-- Fail the attempts on the messages of :delays, pairs of an id and seconds, that are held under :token: each is ready
-- again after its delay, or a dead letter if this was its last attempt. The error is kept.
-- Of several messages the first statement finds those that are held, and their new states. For one, LAST_INSERT_ID
-- remembers the state for fail_state. A look at the row would come too late, because another consumer may have claimed
-- the message meanwhile.
-- Index: the primary key. Locks: the rows. A crash leaves them in progress until their leases expire.
select
    message.id,
    case
        when attempts >= :max_attempts{in_time} then 'dead'{or_blocked}
        when delay > 0 then 'scheduled'
        else 'ready'
    end as state
from {delayed} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
    and cancelled_at is null
for update;
update {delayed} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
    and cancelled_at is null
set state = elt(
        last_insert_id(case
            when attempts >= :max_attempts{in_time} then 3{or_fourth} when delay > 0 then 2 else 1
        end),
        'ready', 'scheduled', 'dead'{fourth}
    ),
    due_at = case when attempts >= :max_attempts{in_time} then due_at else {now} + interval delay second end,
    errors = {errors_and_one},
    token = null,
    lease_until = null{out_of_run};
