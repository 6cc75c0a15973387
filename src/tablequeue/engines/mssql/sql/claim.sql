-- Claim up to :n ready messages under a new lease; each is claimed by one consumer only.
-- One statement finds, locks and marks them: UPDLOCK keeps a second consumer off a row from the first look at it,
-- READPAST lets that consumer skip the row (a strict queue waits instead), ROWLOCK locks it alone. READCOMMITTEDLOCK
-- is for READ_COMMITTED_SNAPSHOT, under which READPAST is refused without it.
-- Index: {table}__ready. It is forced, because the statistics of a queue are out of date as soon as they are made. It
-- has the order of the queue: if the rows had to be sorted, all of them would be locked. The literals are its filter.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
declare @n bigint = :n;
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @consumer nvarchar(512) = cast(:consumer as nvarchar(512));
declare @lease float = cast(:lease as float);
declare @now datetime2(6) = {now};
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
    -- [end]
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
