-- Claim the next range of up to :n messages under a new lease: one row for all of them. If too few have offsets, it
-- sequences first; see create_topic.
-- One claim of a subscription at a time: each begins after the last range, and the application lock comes before the
-- look at it. Locks: that one, until the transaction ends, so never in one of a caller. A claim that does not get it
-- within the lock time-out claims nothing.
-- READPAST passes over the runs of a session that is sequencing. All runs up to one that is committed are committed,
-- too, but their locks end one by one: so the pieces are read without it. If some are missing, because messages were
-- dropped meanwhile, nothing is claimed; the next claim begins after them.
-- Indexes: {table}__last, the primary keys. The messages are read after the commit: they do not change.
-- A consumer that dies leaves its range in progress; sweep sets its messages apart when the lease has expired.
declare @n bigint = :n;
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @consumer nvarchar(512) = cast(:consumer as nvarchar(512));
declare @lease float = cast(:lease as float);
declare @now datetime2(6) = {now};
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
select top (1) @begins = last_offset + 1
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
select @dropped = min(first_offset), @begins = iif(@begins > min(first_offset), @begins, min(first_offset) + 1)
from {runs} with (readcommittedlock);
select top (1) @ends = first_offset + last_id - first_id
from {runs} with (readpast, readcommittedlock)
order by first_offset desc;
if @ends > @begins + @n - 1
    set @ends = @begins + @n - 1;
insert into @pieces (first_offset, low, high)
select
    run.first_offset,
    {low},
    {high}
from {runs} as run with (forceseek, readcommittedlock)
where run.first_offset > @dropped
    and run.first_offset <= @ends
    and run.first_offset >= (
        select max(before.first_offset) from {runs} as before with (readcommittedlock)
        where before.first_offset <= @begins
    );
insert into {ranges} (first_offset, last_offset, messages, ids_sum, token, consumer, popped_at, lease_until)
select
    @begins, @ends, @ends - @begins + 1, sum((low + high) * (high - low + 1) / 2), @token, @consumer, @now, @until
from @pieces
where @granted >= 0 and {unpaused}
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
