-- Delete up to :n ready messages: the queue keeps no history.
-- Index: {table}__ready, forced; it has the order, and the literals are its filter (see claim).
-- Locks: the rows, until the transaction ends; locked rows are skipped by READPAST, or waited for where the queue is
-- strict. A rollback puts all of them back, a crash before the commit too.
declare @n bigint = :n;
declare @now datetime2(6) = {now};
-- [fair]
{take_in_turn}
-- [end]
with next as (
    select top (@n)
        {history_row without token first_popped_at popped_at finished_at producer consumer}
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
{note_deleted}output
    {claimed of deleted with
        attempts = deleted.attempts + 1 as attempts
        popped_at = @now as popped_at
        lease_until = cast(null as datetime2(6)) as lease_until}{of_deleted};
