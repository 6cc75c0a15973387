-- Delete messages that come before the offset :start: up to 1,000 of them, from the beginning of the log. Returns their
-- number. Nothing is deleted if another session sequences just now.
-- Rejected: partitions that are truncated. Their functions belong to the database, not to a schema. A truncation waits
-- for all that read the log, and others wait behind it. It was not tried on a server.
-- Indexes: the primary keys. Locks: that of sequencing, then the messages and two runs.
-- In one transaction: a crash leaves all or nothing.
declare @start bigint = :start;
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue sequence ', object_id(N'{log}'));
declare @gone bigint;
declare @gone_id bigint;
declare @offset bigint;
declare @low bigint;
declare @high bigint;
declare @end bigint;
declare @deleted bigint = 0;
begin transaction;
exec @granted = sp_getapplock
    @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
if @granted >= 0
begin
    select top (1) @gone = first_offset, @gone_id = last_id
    from {runs} with (readcommittedlock)
    order by first_offset;
    select top (1) @offset = first_offset, @low = first_id, @end = last_id
    from {runs} with (readcommittedlock)
    where first_offset > @gone
    order by first_offset;
    select @high = min(bound.id)
    from (values (@end), (@low + 999), (@low + @start - 1 - @offset)) as bound (id);
    set @deleted = iif(@high >= @low, @high - @low + 1, 0);
end;
if @deleted > 0
begin
    delete from message
    from {log} as message with (rowlock, forceseek)
    where message.id between @low and @high;
    delete from {runs}
    where first_offset in (@gone, @offset);
    insert into {runs} (first_offset, first_id, last_id)
    values (@offset + @deleted - 1, iif(@gone_id > @high, @gone_id, @high), iif(@gone_id > @high, @gone_id, @high));
    insert into {runs} (first_offset, first_id, last_id)
    select @offset + @deleted, @high + 1, @end
    where @high < @end;
end;
commit transaction;
select @deleted as deleted;
