-- Claim the next ready message and up to :n - 1 that are blocked behind it in its group, in order of ids, under one
-- lease. The run ends before the first one that is due later, that another transaction is changing, or that is in
-- progress in an open run. With :run 1 no message of the group is promoted while one is in progress, so the group is
-- closed until all of them are finished. With -1 the run is open: see create_groups.
-- The first ready message of a group that is not in :passed comes first, else the first one of all: a claim of an open
-- run passes over the groups that the process claimed from lately.
-- Indexes: {table}__ready, {table}__blocked, {table}__front, the primary key; for state || '' see promote. Locks: the
-- rows; locked ones are skipped, so it waits for nobody. A claim must lock the first message before it claims the
-- others.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
with
-- [limited]
{permits}
-- [end]
fresh as materialized (
    select id, group_key from {queue}
    where {claimable} and group_key <> all(array(select json_array_elements_text(cast(:passed as json))))
    order by id
    limit least(1, {claim_limit})
    for update skip locked
), passed as materialized (
    select id, group_key from {queue}
    where {claimable} and not exists (select from fresh)
    order by id
    limit least(1, {claim_limit})
    for update skip locked
), head as materialized (
    select id, group_key from fresh
    union all
    select id, group_key from passed
), behind as materialized (
    select id from {queue}
    where group_key = (select group_key from head) and state = 'blocked'{in_time}
        and id < (
            select coalesce(-max(held.in_run), 9223372036854775807) from {queue} as held
            where held.group_key = (select group_key from head) and held.in_run < 0 and held.{head}
        )
    order by id
    limit greatest(0, {claim_limit} - 1)
), mine as materialized (
    select id, due_at from {queue}
    where id = any(array(select id from behind)) and state || '' = 'blocked'
    for update skip locked
), run as (
    select id from head
    union all
    select id
    from (
        select
            behind.id,
            bool_and(mine.id is not null and coalesce(mine.due_at <= {now}, true)) over (order by behind.id) as follows
        from behind left join mine on mine.id = behind.id
    ) as message
    where follows
)
-- [limited]
, claimed as (
-- [end]
update {queue}
set state = 'in_progress',
    attempts = attempts + 1,
    token = cast(:token as uuid),
    consumer = cast(:consumer as text),
    popped_at = {now},
    first_popped_at = coalesce(first_popped_at, {now}),
    lease_until = {now} + cast(:lease as float8) * interval '1 second',
    in_run = id * cast(:run as bigint)
where id = any(array(select id from run))
returning
    -- [not limited]
    {claimed};
    -- [end]
    -- [limited]
    {claimed}
), {noted}
select {of_claimed} from claimed;
-- [end]
