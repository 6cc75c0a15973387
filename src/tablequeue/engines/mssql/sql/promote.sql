-- In up to :n groups that were noted, the lowest blocked message becomes the head, if there is none.
-- Indexes: {table}__front, {table}__blocked. Locks: the notes and the new heads. READPAST passes over the notes that
-- another one has.
-- The looks for the lowest message and for a head have no lock hints on purpose. Under READ_COMMITTED_SNAPSHOT they do
-- not wait, and see what is committed: messages that are not come with their own notes, and who has a head locked
-- either leaves it there, or notes the group when it commits. Without that option they wait for them, up to the lock
-- time-out; engine.py then lets it be until the next time.
-- The lowest one that another one is changing is waited for, and left as that one leaves it: were it passed over, and
-- the other one rolled back, the next message would overtake it.
-- If two promote in the same group at once, the unique index lets one of them through. The other one (error 2601) tries
-- again.
-- In one transaction: a crash leaves all or nothing, and what was not promoted is still noted.
declare @n bigint = :n;
declare @now datetime2(6) = {now};
declare @turn table (group_key varbinary(1020) not null);
with noted as (
    select top (@n) id, group_key
    from {turns} with (rowlock, readpast, updlock, readcommittedlock)
    order by id
)
delete from noted
output deleted.group_key into @turn (group_key);
update message
set state = case when message.due_at > @now then 'scheduled' else 'ready' end
output inserted.id
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
    );
