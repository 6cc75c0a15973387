-- Ranges of a topic's log: how a subscription claims, completes and extends them.

-- name: range_lock
-- Try to get the lock of a subscription's claims until the transaction ends; return whether it was free.
-- Index: none. Locks: an application lock, no rows.
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue claim ', object_id(N'{ranges}'));
exec @granted = sp_getapplock
    @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
select case when @granted >= 0 then 1 else 0 end as granted;

-- name: range_claim
-- Claim the next range of up to :n messages under a new lease: one row for all of them. If too few have offsets, it
-- sequences first; see create_topic.
-- One claim of a subscription at a time: each begins after the last range, and the application lock comes before the
-- look at it. Locks: the application lock, until the transaction ends, so never in one of a caller. A claim that does
-- not get it within the lock time-out claims nothing.
-- READPAST passes over the runs of a session that is sequencing. All runs up to one that is committed are committed,
-- too, but their locks end one by one: so the pieces are read without it. If some are missing, because messages were
-- dropped meanwhile, nothing is claimed; the next claim begins after them. At the end of the log @begins is one more
-- than @ends, and nothing is claimed.
-- Indexes: {table}__last, the primary keys. The messages are read after the commit: they do not change.
-- A consumer that dies leaves its range in progress; sweep detaches its messages when the lease has expired.
declare @until datetime2(6) = {now_and_lease};
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue claim ', object_id(N'{ranges}'));
declare @begins bigint;
declare @ends bigint;
declare @dropped bigint;
declare @pieces table (first_offset bigint not null primary key, low bigint not null, high bigint not null);
select top (1) @begins = last_offset + 1
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
select top (1) @ends = first_offset + last_id - first_id
from {runs} with (readpast, readcommittedlock)
order by first_offset desc;
if @ends - @begins + 1 < @n
    exec {log}__sequence 0;
begin transaction;
exec @granted = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction';
{next_offsets};
insert into @pieces (first_offset, low, high)
select
    run.first_offset,
    {low},
    {high}
from {runs} as run with (forceseek, readcommittedlock)
{runs_with_them};
insert into {ranges} (first_offset, last_offset, messages, ids_sum, token, consumer, popped_at, lease_until)
select
    @begins, @ends, @ends - @begins + 1, sum((low + high) * (high - low + 1) / 2), @token, @consumer, @now, @until
from @pieces
where @granted >= 0 and @begins <= @ends and {unpaused}
having sum(high - low + 1) = @ends - @begins + 1;
if @@rowcount = 0
    delete from @pieces;
commit transaction;
select
    {claimed of message with
        attempts = 1
        popped_at = @now
        lease_until = @until
        priority = 0
        dedup_key = null
        due_at = null
        errors = null}
from @pieces as piece
inner join {log} as message with (forceseek, readcommittedlock) on message.id between piece.low and piece.high
order by piece.first_offset, message.id;

-- name: range_due
-- Indexes: {table}__lease, those of the states; one entry of each. Locks: none that lasts. READPAST passes over what
-- others are finishing.
select
    case
        when exists (
            select 1 from {ranges} with (readpast, readcommittedlock)
            where lease_until is not null and lease_until <= @now
        ) then 1
        else 0
    end as expired,
    case
        when exists (
            select 1 from {queue} with (readpast, readcommittedlock) where state = 'scheduled' and due_at <= @now
        ) then 1
        when exists (
            select 1 from {queue} with (readpast, readcommittedlock) where state = 'in_progress' and lease_until <= @now
        ) then 1
        else 0
    end as due,
    case
        when exists (select 1 from {queue} with (readpast, readcommittedlock) where state = 'ready') then 1
        else 0
    end as ready;

-- name: range_complete
-- Index: {table}__token. Locks: the row. A crash leaves it in progress until its lease expires.
update held
set finished_at = @now, lease_until = null
output inserted.id
from {ranges} as held with (index ({table}__token), rowlock)
where held.token = @token and held.lease_until is not null
    and held.messages = @number and held.ids_sum = @sum and held.left_ids is null;

-- name: range_extend
-- Extend the leases on the ranges under :token that hold messages of :ids: they end :lease seconds from now.
-- Returns these messages.
-- Indexes: {table}__token, the index of the runs by last_id, the primary key. Locks: the rows. A crash leaves all
-- extended, or none.
declare @until datetime2(6) = {now_and_lease};
declare @found table (range_id bigint not null, id bigint not null, primary key (range_id, id));
insert into @found (range_id, id)
select distinct held.id, given.id
from (
    select id, first_offset, last_offset, left_ids
    from {ranges} with (index ({table}__token), rowlock, updlock, readcommittedlock)
    where token = @token and lease_until is not null
) as held
cross join openjson(@ids) with (id bigint '$') as given
cross apply (
    select top (1) run.first_id, run.first_offset + given.id - run.first_id as message_offset
    from {runs} as run
    where run.last_id >= given.id
    order by run.last_id
) as place
where place.first_id <= given.id
    and place.message_offset between held.first_offset and held.last_offset
    and not exists (
        select 1 from openjson(held.left_ids) with (id bigint '$') as gone where gone.id = given.id
    );
update held
set lease_until = @until
from {ranges} as held with (rowlock, forceseek)
where held.id in (select one.range_id from @found as one) and held.token = @token and held.lease_until is not null;
select one.id, @until as lease_until from @found as one;
