-- Claim the next ready message and up to :n - 1 that are blocked behind it in its group, in order of ids, under one
-- lease. The run ends before the first one that is due later, and before one that is in progress in an open run. With
-- :run 1 no message of the group is promoted while one is in progress, so the group is closed until all of them are
-- finished. With -1 the run is open: see create_groups.
-- The first ready message of a group that is not in :passed comes first, else the first one of all: a claim of an open
-- run passes over the groups that the process claimed from lately.
-- Indexes: {table}__ready, {table}__blocked, {table}__front, the primary key. Locks: the rows. Of the ready messages
-- locked ones are skipped (a strict queue waits); for a blocked one that another transaction is changing it waits, as
-- promote does.
-- In one transaction. A consumer that dies leaves its messages in progress; sweep returns them when the lease has
-- expired.
-- [grouped]
declare @n bigint = :n;
declare @open bigint = :run;
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @consumer nvarchar(512) = cast(:consumer as nvarchar(512));
declare @lease float = cast(:lease as float);
declare @now datetime2(6) = {now};
declare @until datetime2(6) = {now_and_lease};
declare @run table (id bigint not null primary key, group_key varbinary(1020) not null);
insert into @run (id, group_key)
select top (1) id, group_key
from {queue} with (index ({table}__ready), {claim_locks})
where {claimable}
    and group_key not in (select convert(varbinary(1020), value) from openjson(cast(:passed as nvarchar(max))))
order by id;
if @@rowcount = 0
    insert into @run (id, group_key)
    select top (1) id, group_key
    from {queue} with (index ({table}__ready), {claim_locks})
    where {claimable}
    order by id;
declare @group varbinary(1020) = (select head.group_key from @run as head);
declare @before bigint = coalesce((
    select -max(held.in_run) from {queue} as held
    where held.group_key = @group and held.in_run < 0 and held.{head}
), 9223372036854775807);
insert into @run (id, group_key)
select message.id, @group
from (
    select
        behind.id,
        max(case when behind.due_at > @now then 1 else 0 end) over (order by behind.id rows unbounded preceding)
            as is_later
    from (
        select top (@n - 1) id, due_at
        from {queue} with (index ({table}__blocked), rowlock, updlock, readcommittedlock)
        where group_key = @group and state = 'blocked'{in_time} and id < @before
        order by id
    ) as behind
) as message
where message.is_later = 0;
update message
set state = 'in_progress',
    attempts = attempts + 1,
    token = @token,
    consumer = @consumer,
    popped_at = @now,
    first_popped_at = coalesce(first_popped_at, @now),
    lease_until = @until,
    in_run = message.id * @open
output
    {claimed of inserted}
from {queue} as message with (rowlock, forceseek)
where message.id in (select run.id from @run as run) and message.state in ('ready', 'blocked');
-- [end]
