-- A variable that begins with @p_ is a parameter; with --values there are examples, for sqlcmd.

-- Move up to @p_n ready messages to the history: finished, or under @p_token until they are completed. If the queue
-- keeps no history, delete them.
-- One statement does it, and answers.
-- Index: tq_emails__ready, forced; it has the order, and the literals are its filter (see claim).
-- Locks: the rows, until the transaction ends; locked rows are skipped by READPAST, or waited for where the queue is
-- strict. A rollback puts all of them back, a crash before the commit too.
declare @n bigint = @p_n;
declare @token uniqueidentifier = cast(@p_token as uniqueidentifier);
declare @consumer nvarchar(512) = cast(@p_consumer as nvarchar(512));
declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
with next as (
    select top (@n)
        id, attempts, priority, pushed_at, due_at, first_popped_at, group_key, dedup_key, producer, headers, errors,
        payload
    from tq_emails with (index (tq_emails__ready), rowlock, readpast, updlock, readcommittedlock)
    where state = 'ready' and not exists (select 1 from tq__paused where name = 'tq_emails' and until > @now)
    order by id
)
delete from next
output
    deleted.id, deleted.attempts + 1, deleted.priority, @token, deleted.pushed_at, deleted.due_at,
    coalesce(deleted.first_popped_at, @now), @now, case when @token is null then @now end,
    convert(nvarchar(510), deleted.group_key), convert(nvarchar(510), deleted.dedup_key), deleted.producer, @consumer,
    deleted.headers, deleted.errors, deleted.payload
into tq_emails_history (
    id, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key,
    producer, consumer, headers, errors, payload
)
output
    deleted.id, deleted.payload, deleted.headers, deleted.attempts + 1 as attempts, deleted.pushed_at,
    @now as popped_at, cast(null as datetime2(6)) as lease_until, deleted.priority,
    convert(nvarchar(510), deleted.group_key) as group_key, convert(nvarchar(510), deleted.dedup_key) as dedup_key,
    deleted.due_at, deleted.errors;
