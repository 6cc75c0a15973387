-- The messages of :ids that are held under :token are released, unworked: they are ready after :delay seconds, and the
-- attempt does not count. The first statement tells which of several they are; one alone is known by the number of
-- rows.
-- Index: the primary key. Locks: the rows. A crash leaves them in progress until the lease expires.
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
where cancelled_at is null
for update;
update {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
set state = case{or_blocked} when :delay > 0 then 'scheduled' else 'ready' end,
    due_at = case when :delay > 0 then {now} + interval :delay second else due_at end,
    attempts = attempts - 1,
    token = null,
    lease_until = null{out_of_run}
where cancelled_at is null;
