-- A variable that begins with @p_ is a parameter; with --values there are examples, for sqlcmd.

-- Claim up to @p_n ready messages under a new lease; each is claimed by one consumer only.
-- One statement finds, locks and marks them: UPDLOCK keeps a second consumer off a row from the first look at it,
-- READPAST lets that consumer skip the row (a strict queue waits instead), ROWLOCK locks it alone. READCOMMITTEDLOCK
-- is for READ_COMMITTED_SNAPSHOT, under which READPAST is refused without it.
-- Index: tq_emails__ready. It is forced, because the statistics of a queue are out of date as soon as they are made. It
-- has the order of the queue: if the rows had to be sorted, all of them would be locked. The literals are its filter.
-- Locks: the rows that are claimed, and their entries in the indexes of the states.
-- The attempt is counted here, so that a message that kills its consumer runs out of attempts too.
-- A consumer that dies leaves its messages in progress; sweep returns them when the lease has expired.
declare @n bigint = @p_n;
declare @token uniqueidentifier = cast(@p_token as uniqueidentifier);
declare @consumer nvarchar(512) = cast(@p_consumer as nvarchar(512));
declare @lease float = cast(@p_lease as float);
declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
declare @until datetime2(6) = dateadd(microsecond, cast(round((@lease - floor(@lease / 60) * 60) * 1e6, 0) as int),
    dateadd(minute, cast(floor(@lease / 60) as int), @now));
with next as (
    select top (@n)
        id, state, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, lease_until, group_key,
        dedup_key, consumer, headers, errors, payload
    from tq_emails with (index (tq_emails__ready), rowlock, readpast, updlock, readcommittedlock)
    where state = 'ready' and not exists (select 1 from tq__paused where name = 'tq_emails' and until > @now)
    order by id
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
    inserted.id, inserted.payload, inserted.headers, inserted.attempts, inserted.pushed_at, inserted.popped_at,
    inserted.lease_until, inserted.priority, convert(nvarchar(510), inserted.group_key) as group_key,
    convert(nvarchar(510), inserted.dedup_key) as dedup_key, inserted.due_at, inserted.errors;
