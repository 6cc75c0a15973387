-- The log of a topic: push, give offsets, read, trim.

-- name: topic_push
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
insert into {log} (payload, headers, producer, group_key, pushed_at)
output inserted.id
values (@payload, @headers, @producer, @group, @now);

-- name: topic_push_many
-- Push a batch of messages, in the order of the JSON array :payloads: all of them, or none. The ids rise in that order,
-- and OUTPUT returns them in any order; see push_many.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
insert into {log} (payload, headers, producer, group_key, pushed_at)
output inserted.id
select {payload_of_value}, @headers, @producer, @group, @now
from openjson(@payloads) as batch
order by cast(batch.[key] as int);

-- name: topic_push_each
-- Push a batch of messages, each with a group and headers of its own, in the order of the JSON array :rows; as
-- topic_push_many.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
insert into {log} (payload, headers, producer, group_key, pushed_at)
output inserted.id
select {payload_of_row}, given.headers, @producer, convert(varbinary(1020), given.group_key), @now
from openjson(@rows) as entry
cross apply openjson(entry.value) with (
    payload nvarchar(max) '$.payload',
    headers nvarchar(max) '$.headers',
    group_key nvarchar(510) '$.group'
) as given
order by cast(entry.[key] as int);

-- name: sequence
-- Give the messages that have become visible their offsets; see create_topic. Then forget the holes that no transaction
-- can fill any more.
-- A transaction that pushes holds an intent lock on the log until it ends. So at a moment at which nobody has one,
-- which a shared lock on the table proves, all transactions that were given ids before have ended. The lock lasts for
-- one statement that reads one row. HOLDLOCK takes it under READ_COMMITTED_SNAPSHOT, too. It is not waited for: on a
-- busy topic the holes stay, which costs looks at them.
-- A hole must also have been seen a minute before: that the intent lock comes before the id is not documented.
-- Indexes: the primary keys. Locks: those of create_topic; then the log, shared; then the holes. Never in a transaction
-- of a caller.
declare @seen_before datetime2(6) = dateadd(minute, -1, sysutcdatetime());
declare @one bigint;
declare @quiet bit = 0;
exec {log}__sequence 1;
if @@trancount = 0
    and exists (select 1 from {holes} with (readpast, readcommittedlock) where seen_at < @seen_before)
begin
    set lock_timeout 0;
    begin try
        select top (1) @one = id from {log} with (tablock, holdlock);
        set @quiet = 1;
    end try
    begin catch
        set lock_timeout 5000;
        if error_number() <> 1222 throw;
    end catch;
    set lock_timeout 5000;
end;
if @quiet = 1
    delete top (1000) from hole
    from {holes} as hole with (rowlock, readpast, readcommittedlock)
    where hole.seen_at < @seen_before
        and not exists (
            select 1 from {log} as message with (forceseek, readcommittedlock)
            where message.id between hole.first_id and hole.last_id
        );

-- name: topic_bounds
-- Index: the primary key of the runs. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for a
-- session that sequences.
select
    (select min(first_offset) + 1 from {runs}) as first,
    (select top (1) first_offset + last_id - first_id + 1 from {runs} order by first_offset desc) as after_last;

-- name: topic_pushed_at
-- When the message was pushed that has the highest id up to the offset :start. These times never go back, so that one
-- can search by them, though a message that was committed late comes after younger ones.
-- Indexes: the primary keys. Locks: as topic_bounds.
select message.pushed_at
from (
    select
        max(iif(last_id < first_id + @start - first_offset, last_id, first_id + @start - first_offset)) as id
    from {runs}
    where first_offset <= @start
) as run
inner join {log} as message on message.id = run.id;

-- name: topic_rows
-- The messages at the offsets from :start on and before :end, in their order.
-- Indexes: the primary keys. Locks: none that lasts; it waits for none, as they are committed.
declare @begins bigint = :start;
declare @ends bigint = :end;
declare @pieces table (first_offset bigint not null primary key, low bigint not null, high bigint not null);
set @ends = @ends - 1;
insert into @pieces (first_offset, low, high)
select
    iif(run.first_offset < @begins, @begins, run.first_offset),
    {low},
    {high}
from {runs} as run with (forceseek, readcommittedlock)
where run.first_offset <= @ends
    and run.first_offset >= (
        select coalesce(max(before.first_offset), 0) from {runs} as before with (readcommittedlock)
        where before.first_offset <= @begins
    );
select
    piece.first_offset + message.id - piece.low as message_offset, message.id, message.payload, message.headers,
    convert(nvarchar(510), message.group_key) as group_key, message.producer, message.pushed_at
from @pieces as piece
inner join {log} as message with (forceseek, readcommittedlock) on message.id between piece.low and piece.high
order by piece.first_offset, message.id;

-- name: topic_size
-- What the log has: the number of its messages, the bytes as the database knows them, and the seconds since the first
-- message was pushed. Messages in holes are not counted.
-- Indexes: the primary keys, that of the runs by last_id. Locks: as range_stats.
declare @last bigint;
select top (1) @last = last_id
from {runs} with (readpast, readcommittedlock)
order by last_id desc;
select
    (select max(first_offset + last_id - first_id) - min(first_offset) from {runs})
        + (select count_big(*) from {log} with (readpast, readcommittedlock) where id > @last) as messages,
    (
        select cast(coalesce(sum(used_page_count), 0) * 8192 as bigint)
        from sys.dm_db_partition_stats
        where object_id = object_id(N'{log}')
    ) as bytes,
    (
        select top (1) datediff_big(microsecond, message.pushed_at, @now) / 1e6
        from {log} as message with (readpast, readcommittedlock)
        order by message.id
    ) as oldest_age;

-- name: sequence_lock
-- Wait until no other session sequences the topic, and keep others from it until the transaction ends.
-- Index: none. Locks: an application lock, no rows.
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue sequence ', object_id(N'{log}'));
exec @granted = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction';
if @granted < 0
    throw 51000, N'tablequeue: other sessions are sequencing this topic', 1;

-- name: topic_trim
-- Delete messages that come before the offset :start: up to 1,000 of them, from the beginning of the log. Returns their
-- number. Nothing is deleted if another session sequences just now.
-- Rejected: partitions that are truncated. Their functions belong to the database, not to a schema. A truncation waits
-- for all that read the log, and others wait behind it. It was not tried on a server.
-- Indexes: the primary keys. Locks: that of sequencing, then the messages and two runs.
-- In one transaction: a crash leaves all or nothing.
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

-- name: topic_stats_pushed
-- Index: the primary key, backwards, for :n rows: no index has the time of a push, but ids rise with it.
-- Locks: none that lasts. READPAST passes over messages in flight.
declare @since datetime2(6) = {now_less_age};
select producer, datediff_big(microsecond, pushed_at, @now) / 1e6 as ago, count_big(*) as pushed
from (
    select top (@n) producer, pushed_at
    from {log} with (readpast, readcommittedlock)
    order by id desc
) as newest
where pushed_at > @since and pushed_at <= @now
group by producer, pushed_at;
