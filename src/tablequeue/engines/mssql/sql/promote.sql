-- In up to :n groups that were noted, the lowest blocked message becomes the head, if there is none, and if it is not
-- behind a message of an open run (see create_groups).
-- Indexes: {table}__front, {table}__blocked. Locks: the notes and the new heads. READPAST skips notes that another
-- transaction has locked.
-- The subqueries for the lowest message and for a head have no lock hints on purpose. Under READ_COMMITTED_SNAPSHOT
-- they do not wait, and see committed data only. That is enough: a message that is not committed yet comes with a note
-- of its own, and a transaction that has a head locked either keeps it or notes the group when it commits. Without that
-- option they wait for such transactions, up to the lock time-out; messages.py then leaves the notes for the next call.
-- If another transaction is changing the lowest message, promote waits for it. If promote skipped that message, and the
-- other transaction rolled back, the next message would overtake it.
-- If two transactions promote in the same group at once, the unique index refuses one of them (error 2601), which tries
-- again.
-- A run of the group may have begun meanwhile, which the first update has not seen. Since the index has the new head,
-- no other run can begin before the commit. The second update finds a message of such a run, and gives the head the
-- same entry in the index, which refuses it.
-- In one transaction: a crash leaves all or nothing, and groups that were not promoted are still noted.
declare @n bigint = :n;
declare @now datetime2(6) = {now};
declare @turn table (group_key varbinary(1020) not null);
declare @head table (id bigint not null primary key, group_key varbinary(1020) not null);
with noted as (
    select top (@n) id, group_key
    from {turns} with (rowlock, readpast, updlock, readcommittedlock)
    order by id
)
delete from noted
output deleted.group_key into @turn (group_key);
update message
set state = case when message.due_at > @now then 'scheduled' else 'ready' end
output inserted.id, inserted.group_key into @head (id, group_key)
from (select distinct group_key from @turn) as turn
cross apply (
    select top (1) waiting.id
    from {queue} as waiting with (index ({table}__blocked))
    where waiting.group_key = turn.group_key and waiting.state = 'blocked'
    order by waiting.id
) as next
inner join {queue} as message with (rowlock, forceseek) on message.id = next.id
where message.state = 'blocked'
    and not exists (
        select 1 from {queue} as there
        where there.group_key = turn.group_key
            and there.{head}
            and there.in_run > -next.id
    );
update message
set in_run = there.in_run
from @head as head
inner join {queue} as message with (rowlock, forceseek) on message.id = head.id
inner join {queue} as there on there.group_key = head.group_key
where there.in_run <> 0 and there.in_run > -head.id and there.{head};
select id from @head;
