-- Move up to :n ready messages to the history: finished, or under :token until they are completed. One statement
-- deletes them, writes the history and answers.
-- Index: {table}__ready, forced; it has the order, and the literals are its filter (see claim).
-- Locks: the rows, until the transaction ends; locked rows are skipped by READPAST, or waited for where the queue is
-- strict. A rollback puts all of them back, a crash before the commit too.
declare @n bigint = :n;
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @consumer nvarchar(512) = cast(:consumer as nvarchar(512));
declare @now datetime2(6) = {now};
-- [fair]
{take_in_turn}
-- [end]
with next as (
    select top (@n)
        {history_row without token popped_at finished_at consumer}
    -- [in_order]
    from {queue} with (index ({table}__ready), {claim_locks})
    where {claimable}
    order by {order_by}
    -- [end]
    -- [fair]
    , slot
    from {queue} with (forceseek, {claim_locks})
    where {claimable} and id in (select id from @chosen)
    -- [end]
)
delete from next
output
    {history_row of deleted with
        attempts = deleted.attempts + 1
        token = @token
        first_popped_at = coalesce(deleted.first_popped_at, @now)
        popped_at = @now
        finished_at = case when @token is null then @now end
        group_key = convert(nvarchar(510), deleted.group_key)
        dedup_key = convert(nvarchar(510), deleted.dedup_key)
        consumer = @consumer}
into {history} (
    {history_row}
)
output
    {claimed of deleted with
        attempts = deleted.attempts + 1 as attempts
        popped_at = @now as popped_at
        lease_until = cast(null as datetime2(6)) as lease_until}{of_deleted};
