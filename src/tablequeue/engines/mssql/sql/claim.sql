-- Claims and takes of messages.

-- name: claim
-- Claim up to :n ready messages under a new lease; each is claimed by one consumer only.
-- One statement finds, locks and marks them: UPDLOCK keeps a second consumer off a row from the first look at it,
-- READPAST lets that consumer skip the row (a strict queue waits instead), ROWLOCK locks it alone. READCOMMITTEDLOCK
-- is for READ_COMMITTED_SNAPSHOT, under which READPAST is refused without it.
-- Index: {table}__ready. It is forced, because the statistics of a queue are out of date as soon as they are made. It
-- has the order of the queue: if the rows had to be sorted, all of them would be locked. The literals are its filter.
-- Locks: the rows that are claimed, and their entries in the indexes of the states.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
declare @until datetime2(6) = {now_and_lease};
-- [fair]
{in_turn}
-- [end]
with next as (
    select top (@n)
        {queue_row without producer}
    -- [in_order]
    from {queue} with (index ({table}__ready), {claim_locks})
    where {claimable}
    order by {order_by}
    -- [fair]
    , slot
    from {queue} with (forceseek, {claim_locks})
    where {claimable} and id in (select id from @chosen)
    -- [end]
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
    {claimed of inserted}{of_inserted};

-- name: take
-- One statement does it, and answers.
-- Index: {table}__ready, forced; it has the order, and the literals are its filter (see claim).
-- Locks: the rows, until the transaction ends; locked rows are skipped by READPAST, or waited for where the queue is
-- strict. A rollback puts all of them back, a crash before the commit too.
-- [fair]
{in_turn take}
-- [end]
with next as (
    select top (@n)
        -- [keep]
        {history_row without token popped_at finished_at consumer}
        -- [else]
        {history_row without token first_popped_at popped_at finished_at producer consumer}
    -- [in_order]
    from {queue} with (index ({table}__ready), {claim_locks})
    where {claimable}
    order by {order_by}
    -- [fair]
    , slot
    from {queue} with (forceseek, {claim_locks})
    where {claimable} and id in (select id from @chosen)
    -- [end]
)
delete from next
-- [keep]
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
-- [else]
{note_deleted}output
-- [end]
    {claimed of deleted with
        attempts = deleted.attempts + 1 as attempts
        popped_at = @now as popped_at
        lease_until = cast(null as datetime2(6)) as lease_until}{of_deleted};
