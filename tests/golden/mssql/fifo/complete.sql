-- A variable that begins with @p_ is a parameter; with --values there are examples, for sqlcmd.

-- Complete the messages of @p_ids that are held under @p_token: they move to the history, or are deleted.
-- Index: the primary key. FORCESEEK: OPENJSON is always taken for 50 rows, and on a short table the plan could be to
-- scan, and so to lock, all of it. Locks: the rows. A crash leaves all of them completed, or none.
declare @ids nvarchar(max) = cast(@p_ids as nvarchar(max));
declare @token uniqueidentifier = cast(@p_token as uniqueidentifier);
declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
delete from message
output
    deleted.id, deleted.attempts, deleted.priority, deleted.pushed_at, deleted.due_at, deleted.first_popped_at,
    deleted.popped_at, @now, convert(nvarchar(510), deleted.group_key), convert(nvarchar(510), deleted.dedup_key),
    deleted.producer, deleted.consumer, deleted.headers, deleted.errors, deleted.payload
into tq_emails_history (
    id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
    consumer, headers, errors, payload
)
output deleted.id, convert(nvarchar(510), deleted.group_key) as group_key
from tq_emails as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token;
