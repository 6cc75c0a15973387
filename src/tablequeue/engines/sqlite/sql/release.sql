-- The messages of :ids that are held under :token are released, unworked: they are ready after :delay seconds, and the
-- attempt does not count.
-- Index: the primary key. Locks: the database. A crash leaves them in progress until the lease expires.
update {queue}
set state = case{or_blocked} when :delay > 0 then 'scheduled' else 'ready' end,
    due_at = case when :delay > 0 then {now} + cast(:delay * 1000000 as integer) else due_at end,
    attempts = attempts - 1,
    token = null,
    lease_until = null{out_of_run}
where id in (select value from json_each(:ids)) and token = :token and cancelled_at is null
returning id, state = 'blocked';
