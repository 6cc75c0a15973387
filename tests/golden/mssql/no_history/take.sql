-- A word after a colon is a parameter; with --values there are examples, for sqlcmd.

-- Remove up to :n ready messages, for this queue keeps no history.
-- Index: tq_emails__ready, forced; it has the order, and the literals are its filter (see claim).
-- Locks: the rows, until the transaction ends; those that another one has are passed over by READPAST, or waited for
-- where the queue is strict. A rollback puts all of them back, a crash before the commit too.
declare @n bigint = :n;
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
with next as (
    select top (@n)
        id, attempts, priority, pushed_at, due_at, group_key, dedup_key, headers, payload
    from tq_emails with (index (tq_emails__ready), rowlock, readpast, updlock, readcommittedlock)
    where state = 'ready'
    order by id
)
delete from next
output
    deleted.id, deleted.payload, deleted.headers, deleted.attempts + 1 as attempts, deleted.pushed_at,
    @now as popped_at, cast(null as datetime2(6)) as lease_until, deleted.priority,
    convert(nvarchar(510), deleted.group_key) as group_key, convert(nvarchar(510), deleted.dedup_key) as dedup_key,
    deleted.due_at;
