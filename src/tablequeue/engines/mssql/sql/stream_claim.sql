-- Claim up to :n ready messages, with ids up to :high if that is given, for a batch of a stream. There is no lease:
-- they stay with the stream until it completes the batch, or the batch is released.
-- Index: {table}__ready, and hints, as in claim. A stream does not wait for the head of a strict queue either: nothing
-- behind a head is ready. Locks: the rows; rows that another claim has locked are skipped.
-- In one transaction with stream_set: after a crash none is claimed.
declare @n bigint = :n;
declare @high bigint = coalesce(cast(:high as bigint), 9223372036854775807);
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @consumer nvarchar(512) = cast(:consumer as nvarchar(512));
declare @now datetime2(6) = {now};
-- [fair]
{in_turn_up_to_high}
-- [end]
with next as (
    select top (@n)
        id, state, attempts, token, first_popped_at, popped_at, lease_until, consumer
    -- [in_order]
    from {queue} with (index ({table}__ready), rowlock, readpast, updlock, readcommittedlock)
    where {claimable} and id <= @high
    order by {order_by}
    -- [end]
    -- [fair]
    , slot
    from {queue} with (rowlock, readpast, updlock, readcommittedlock)
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
    lease_until = null
output inserted.id{of_inserted};
