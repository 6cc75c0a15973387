-- Groups: their tables, the heads of ordered groups, the turns of fair ones, claims of one group.

-- name: create_groups
-- The unique index keeps that promise: one message of a group at most is ready, scheduled or in progress. Those of a
-- run are in progress together: in_run is the id of the message if it was claimed in a run, else 0. In an open run it
-- is minus the id: such a message holds up those behind it, and not those before it. So a message becomes the head if
-- no head of its group has an in_run above minus its own id.
-- A change notes in {turns}, in its own transaction, which groups promote must look at: those that got a message, and
-- those that may have lost their head. A superfluous note costs a look; a missing note would stop a group.
-- The statements write the notes themselves (OUTPUT ... INTO, or note). Rejected: triggers. A table with a trigger
-- refuses every OUTPUT without INTO (error 334), so that each claim would have to copy its payload through a table
-- variable. An UPDATE trigger would fire at every claim and find nothing to do. And a bulk copy bypasses triggers.
-- The price: a user that deletes a message by hand, or makes one dead or blocked, must note its group too.
-- {turns} is written to by OUTPUT ... INTO: it may have no trigger, no foreign key and no check.
-- Runs in one transaction: a crash leaves nothing.
create unique index {table}__front on {queue} (group_key, in_run) include (state) where {head};
create table {turns} (
    id bigint identity (1, 1) not null constraint pk_{table}__turns primary key clustered,
    group_key varbinary(1020) not null
);
alter table {turns} set (lock_escalation = disable);

-- name: drop_groups
-- Drop what a grouped queue has beside its table: the notes of which groups to look at.
drop table if exists {turns};

-- name: claim_ring
-- The slot of a random one of up to :n groups that have something ready, in turn. A process begins behind it.
-- Index: {table}__ready, one look for each group. Locks: shared ones while it reads; locked rows are skipped.
{ring_of_groups}
select top (1) slot from @ring order by newid();

-- name: begin_ring
-- In printed SQL only: a session begins behind a random slot. The context of the session keeps it.
-- Index: none. Locks: none.
if session_context({ring_of_session}) is null
begin
    declare @served bigint = cast(crypt_gen_random(8) as bigint);
    exec sp_set_session_context {ring_of_session}, @served;
end;

-- name: move_ring
-- In printed SQL only: note which group was served last, by its slot :served. If nothing was claimed, :served is null.
-- Index: that of the state. Locks: shared ones while it reads.
if @served is not null exec sp_set_session_context {ring_of_session}, @served;

-- name: claim_run
-- Claim the next ready message and up to :n - 1 that are blocked behind it in its group, in order of ids, under one
-- lease. The run ends before the first one that is due later, or that another transaction has locked, and before one
-- that is in progress in an open run. With :run 1 no message of the group is promoted while one is in progress, so the
-- group is closed until all of them are finished. With -1 the run is open: see create_groups.
-- The first ready message of a group that is not in :passed comes first, else the first one of all: a claim of an open
-- run passes over the groups that the process claimed from lately.
-- Indexes: {table}__ready, {table}__blocked, {table}__front, the primary key. Locks: the rows. Locked ones are skipped;
-- but a strict queue waits for its ready message. The search for those behind it has no lock hints: see promote.
-- In one transaction. A consumer that dies leaves its messages in progress; sweep returns them when the lease has
-- expired.
-- [grouped]
declare @open bigint = :run;
declare @until datetime2(6) = {now_and_lease};
declare @run table (id bigint not null primary key, group_key varbinary(1020) not null);
declare @behind table (id bigint not null primary key);
declare @mine table (id bigint not null primary key, due_at datetime2(6));
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
insert into @behind (id)
select top (@n - 1) id
from {queue} with (index ({table}__blocked))
where group_key = @group and state = 'blocked'{in_time} and id < @before
order by id;
insert into @mine (id, due_at)
select message.id, message.due_at
from {queue} as message with (rowlock, readpast, updlock, readcommittedlock, forceseek)
where message.id in (select behind.id from @behind as behind) and message.state = 'blocked';
insert into @run (id, group_key)
select message.id, @group
from (
    select
        behind.id,
        max(case when mine.id is null or mine.due_at > @now then 1 else 0 end)
            over (order by behind.id rows unbounded preceding) as is_later
    from @behind as behind
    left join @mine as mine on mine.id = behind.id
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

-- name: claim_group
-- Index: {table}__ready, by the slot of the group; another group may have the same slot. Locks: as claim.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
declare @slot bigint = cast(substring(hashbytes('MD5', @group), 1, 8) as bigint);
declare @until datetime2(6) = {now_and_lease};
with next as (
    select top (@n)
        {queue_row without producer}
    from {queue} with (index ({table}__ready), {claim_locks})
    where {claimable} and slot = @slot and group_key = @group
    order by id
)
update next
set state = 'in_progress',
    attempts = attempts + 1,
    token = @token,
    consumer = @consumer,
    popped_at = @now,
    first_popped_at = coalesce(first_popped_at, @now),
    lease_until = @until
output
    {claimed of inserted};

-- name: promote
-- In up to :n groups that were noted, the lowest blocked message becomes the head, if there is none, and if it is not
-- behind a message of an open run (see create_groups).
-- Indexes: {table}__front, {table}__blocked. Locks: the notes and the new heads. READPAST skips notes and messages that
-- another transaction has locked.
-- The subqueries for the lowest message and for a head have no lock hints on purpose. Under READ_COMMITTED_SNAPSHOT
-- they do not wait, and see committed data only. That is enough: a message that is not committed yet comes with a note
-- of its own, and a transaction that has a head locked either keeps it or notes the group when it commits. Without that
-- option they wait for such transactions, up to the lock time-out; messages.py then leaves the notes for the next call.
-- If another transaction is changing the lowest message, promote passes over it, so that no group waits for that
-- transaction. The group gets a new note, since a rollback leaves none. No other message of it becomes the head
-- meanwhile, for the first one would be overtaken: the choice of the lowest message has no READPAST.
-- If two transactions promote in the same group at once, the unique index refuses one of them (error 2601), which tries
-- again.
-- A run of the group may have begun meanwhile, which the first update has not seen. Since the index has the new head,
-- no other run can begin before the commit. The second update finds a message of such a run, and gives the head the
-- same entry in the index, which refuses it.
-- In one transaction: a crash leaves all or nothing, and groups that were not promoted are still noted.
declare @turn table (group_key varbinary(1020) not null);
declare @next table (id bigint not null primary key, group_key varbinary(1020) not null);
declare @head table (id bigint not null primary key, group_key varbinary(1020) not null);
with noted as (
    select top (@n) id, group_key
    from {turns} with (rowlock, readpast, updlock, readcommittedlock)
    order by id
)
delete from noted
output deleted.group_key into @turn (group_key);
insert into @next (id, group_key)
select next.id, turn.group_key
from (select distinct group_key from @turn) as turn
cross apply (
    select top (1) waiting.id
    from {queue} as waiting with (index ({table}__blocked))
    where waiting.group_key = turn.group_key and waiting.state = 'blocked'
    order by waiting.id
) as next
where not exists (
    select 1 from {queue} as there
    where there.group_key = turn.group_key
        and there.{head}
        and there.in_run > -next.id
);
update message
set state = case when message.due_at > @now then 'scheduled' else 'ready' end
output inserted.id, inserted.group_key into @head (id, group_key)
from @next as next
inner join {queue} as message with (rowlock, readpast, updlock, readcommittedlock, forceseek) on message.id = next.id
where message.state = 'blocked';
insert into {turns} (group_key)
select next.group_key from @next as next where not exists (select 1 from @head as head where head.id = next.id);
update message
set in_run = there.in_run
from @head as head
inner join {queue} as message with (rowlock, forceseek) on message.id = head.id
inner join {queue} as there on there.group_key = head.group_key
where there.in_run <> 0 and there.in_run > -head.id and there.{head};
select id from @head;
