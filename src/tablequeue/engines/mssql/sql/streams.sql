-- Streams: claims that a batch can be read from again.

-- name: streams
-- Index: the primary key; {table}__in_progress, forced as in claim, of which it reads what has no lease.
-- RECOMPILE: no variable is here, and PARAMETERIZATION FORCED would put one in the place of the filter's literal.
-- Locks: none under READ_COMMITTED_SNAPSHOT; else it waits for streams that are claiming or completing.
select
    convert(nvarchar(510), streams.stream) as stream, streams.epoch, streams.batch, streams.completed,
    lower(replace(convert(char(36), streams.token), '-', '')) as token, streams.claimed_at,
    (
        select count_big(*) from {queue} as message with (index ({table}__in_progress))
        where message.state = 'in_progress' and message.lease_until is null and message.token = streams.token
    ) as messages
from {streams} as streams
order by streams.stream
option (recompile);

-- name: create_streams
-- The name is the bytes of its text, as a key is (see create), and too long for a clustered key.
-- Made when the first stream begins, under the creators' lock. Runs in one transaction: a crash leaves nothing.
if object_id(N'{streams}', N'U') is null
    create table {streams} (
        stream varbinary(1020) not null constraint pk_{table}__streams primary key nonclustered,
        epoch bigint not null,
        batch bigint not null,
        completed bigint not null,
        token uniqueidentifier null,
        claimed_at datetime2(6) null,
        failures nvarchar(max) not null
    );

-- name: stream_open
-- If two open a new one at once, the primary key refuses the second one (error 2627), which tries again.
-- Index: the primary key. Locks: the row. A crash before the commit leaves the run before as it was.
update {streams} with (rowlock) set epoch = epoch + 1 where stream = @stream;
if @@rowcount = 0
    insert into {streams} (stream, epoch, batch, completed, failures) values (@stream, 1, 0, 0, N'{}');

-- name: stream_lock
-- READCOMMITTEDLOCK: under READ_COMMITTED_SNAPSHOT too, it waits for the one before, and reads what that has committed.
-- Index: the primary key. Locks: the row.
select epoch, batch, completed, lower(replace(convert(char(36), token), '-', '')) as token, failures
from {streams} with (rowlock, updlock, readcommittedlock)
where stream = @stream;

-- name: stream_set
-- Index: the primary key. Locks: the row. A crash before the commit leaves it where it was, and its messages too.
update {streams} with (rowlock)
set batch = @batch,
    completed = @completed,
    token = @claim,
    claimed_at = case when @claim is not null then @now end,
    failures = @failures
where stream = @stream;

-- name: stream_claim
-- Index: {table}__ready, and hints, as in claim. A stream does not wait for the head of a strict queue either: nothing
-- behind a head is ready. Locks: the rows; rows that another claim has locked are skipped.
-- In one transaction with stream_set: after a crash none is claimed.
declare @high bigint = coalesce(cast(:high as bigint), 9223372036854775807);
-- [fair]
{in_turn up_to_high}
-- [end]
with next as (
    select top (@n)
        id, state, attempts, token, first_popped_at, popped_at, lease_until, consumer
    -- [in_order]
    from {queue} with (index ({table}__ready), rowlock, readpast, updlock, readcommittedlock)
    where {claimable} and id <= @high
    order by {order_by}
    -- [fair]
    , slot
    from {queue} with (forceseek, rowlock, readpast, updlock, readcommittedlock)
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

-- name: stream_ids
-- The ids of the messages in progress under :token, which is a stream's and has no lease, in no order.
-- Index: {table}__in_progress, forced as in claim, of which it reads what has no lease.
-- Locks: none under READ_COMMITTED_SNAPSHOT; else it waits for other streams that are claiming.
select id
from {queue} with (index ({table}__in_progress))
where state = 'in_progress' and lease_until is null and token = @token;

-- name: stream_rows
-- Read the messages of the JSON array :ids that are in progress under :token.
-- Index: the primary key, sought as in complete. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option:
-- shared locks while it reads, and it waits for transactions that change a row.
select
    {live_columns}
from {queue} as message with (forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token
order by message.id;
