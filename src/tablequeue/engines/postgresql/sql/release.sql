-- The messages of :ids that are held under :token are released, unworked: they are ready after :delay seconds, and the
-- attempt does not count. Returns which were in a run, so that their group goes on by a promotion.
-- Index: the primary key. Locks: the rows. A crash leaves them in progress until the lease expires.
with released as (
    update {queue}
    set state = case{or_blocked} when cast(:delay as float8) > 0 then 'scheduled' else 'ready' end,
        due_at = case
            when cast(:delay as float8) > 0 then {now} + cast(:delay as float8) * interval '1 second'
            else due_at
        end,
        attempts = attempts - 1,
        token = null,
        lease_until = null{out_of_run}
    where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid) and cancelled_at is null
    returning id, state = 'blocked' as from_run
)
select id, from_run, {waited_for} as waited_for from released;
