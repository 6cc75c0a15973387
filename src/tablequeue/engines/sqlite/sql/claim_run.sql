-- Claim the next ready message and up to :n - 1 that are blocked behind it in its group, in order of ids, under one
-- lease. The run ends before the first one that is due later, and before one that is in progress in an open run. With
-- :run 1 no message of the group is promoted while one is in progress, so the group is closed until all of them are
-- finished. With -1 the run is open: see create_groups.
-- The first ready message of a group that is not in :passed comes first, else the first one of all: a claim of an open
-- run passes over the groups that the process claimed from lately.
-- Indexes: {table}__ready, {table}__blocked, the primary key. Locks: the database, for the length of the statement.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
with head as (
    select id, group_key from {queue}
    where id = coalesce((
        select id from {queue}
        where {claimable} and group_key not in (select value from json_each(:passed))
        order by id limit 1
    ), (select id from {queue} where {claimable} order by id limit 1))
    limit min(1, {claim_limit})
), behind as (
    select id, due_at from {queue}
    where group_key = (select group_key from head) and state = 'blocked'{in_time}
        and id < (
            select coalesce(-max(held.in_run), 9223372036854775807) from {queue} as held
            where held.group_key = (select group_key from head) and held.in_run < 0 and held.{head}
        )
    order by id limit max(0, {claim_limit} - 1)
)
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = :token,
    consumer = :consumer,
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + cast(:lease * 1000000 as integer),
    in_run = id * :run
where id in (
    select id from head
    union all
    select id from (select id, max(coalesce(due_at > {now}, 0)) over (order by id) as is_later from behind)
    where not is_later
)
returning
    {claimed};
