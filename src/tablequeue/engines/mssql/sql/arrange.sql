-- In up to :n groups that were noted, the lowest blocked message becomes the front, if there is none.
-- Indexes: {table}__front, {table}__blocked. Locks: the notes and the new fronts. READPAST passes over the notes that
-- another one has, and over messages that are not committed yet: their own notes come with their commit.
-- The look for a front has no hint on purpose. Under READ_COMMITTED_SNAPSHOT it does not wait: who has a front locked
-- either leaves it there, or notes the group when it commits. Without that option it waits for them, up to the lock
-- time-out; engine.py then lets it be until the next time.
-- Two that arrange the same group at once: the unique index lets one of them through; the other one (error 2601) tries
-- again.
-- In one transaction: a crash leaves all or nothing, and what was not arranged is still noted.
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
    from {queue} as waiting with (index ({table}__blocked), rowlock, readpast, updlock, readcommittedlock)
    where waiting.group_key = turn.group_key and waiting.state = 'blocked'
    order by waiting.id
) as next
inner join {queue} as message with (rowlock, forceseek) on message.id = next.id
where message.state = 'blocked'
    and not exists (
        select 1 from {queue} as there
        where there.group_key = turn.group_key
            and there.{front}
    );
