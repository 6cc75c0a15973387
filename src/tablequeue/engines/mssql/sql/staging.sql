-- Staged messages of many processes: write, publish, delete.

-- name: create_staged
-- Clustered on the write, in the order in which it is pushed: each write reads and deletes a range of its own, and
-- waits for none. Not unique: two attempts at a part have the same places. The second index finds keys that are there
-- twice.
-- No lock escalation: it would stop the other writes.
-- Made at the first such write, under the creators' lock. Runs in one transaction: a crash leaves nothing.
if object_id(N'{staged}', N'U') is null
begin
    create table {staged} (
        write_id char(32) collate Latin1_General_100_BIN2 not null,
        attempt char(32) collate Latin1_General_100_BIN2 not null,
        part int not null,
        place bigint not null,
        priority int null,
        due_at datetime2(6) null,
        staged_at datetime2(6) not null,
        group_key varbinary(1020) null,
        dedup_key varbinary(1020) null,
        headers nvarchar(max) null,
        payload {staged_type} not null
    );
    alter table {staged} set (lock_escalation = disable);
    create clustered index {table}__staged_order on {staged} (write_id, part, place);
    create index {table}__staged_key on {staged} (write_id, dedup_key) where dedup_key is not null;
    create table {writers} (
        writer varbinary(1020) not null constraint pk_{table}__writers primary key nonclustered,
        batch bigint not null
    );
end;

-- name: stage
-- Stage the messages in the JSON array :rows, of the part :part of the write :write.
-- Locks: none that another transaction waits for. After a crash the staged messages stay for a day, invisible.
insert into {staged} (
    write_id, attempt, part, place, priority, due_at, staged_at, group_key, dedup_key, headers, payload
)
select
    @write, @attempt, @part, given.place, given.priority, given.due, @now,
    convert(varbinary(1020), given.group_key), convert(varbinary(1020), given.dedup_key), given.headers,
    {payload_of_row}
from openjson(@rows) with (
    place bigint '$.place',
    payload nvarchar(max) '$.payload',
    headers nvarchar(max) '$.headers',
    priority int '$.priority',
    group_key nvarchar(510) '$.group',
    dedup_key nvarchar(510) '$.key',
    due datetime2(6) '$.due'
) as given;

-- name: staged_count
-- Index: {table}__staged_order, the range of the write. Locks: none that another write waits for.
declare @given table (attempt char(32) collate Latin1_General_100_BIN2 not null primary key);
insert into @given (attempt)
select distinct cast(entry.value as char(32))
from openjson(@attempts) as entry;
select count_big(*) as staged
from {staged}
where write_id = @write and attempt in (select attempt from @given);

-- name: staged_taken
-- READCOMMITTEDLOCK: under READ_COMMITTED_SNAPSHOT too, the look at a key waits for another transaction that is pushing
-- the same one. Indexes: {table}__staged_key, {table}__key.
-- Locks: shared ones while it reads.
declare @given table (attempt char(32) collate Latin1_General_100_BIN2 not null primary key);
insert into @given (attempt)
select distinct cast(entry.value as char(32))
from openjson(@attempts) as entry;
select top (100) convert(nvarchar(510), taken.dedup_key) as dedup_key
from (
    select batch.dedup_key
    from {staged} as batch
    where batch.write_id = @write and batch.attempt in (select attempt from @given)
        and exists (
            select 1 from {queue} as there with (readcommittedlock)
            where there.dedup_key = batch.dedup_key and there.dedup_key is not null
        )
    union
    select dedup_key
    from {staged}
    where write_id = @write and attempt in (select attempt from @given) and dedup_key is not null
    group by dedup_key
    having count_big(*) > 1
) as taken
order by taken.dedup_key;

-- name: writer_advance
-- Returns a row, or none if that batch was written before. READCOMMITTEDLOCK: under READ_COMMITTED_SNAPSHOT too, the
-- look waits for a transaction that inserts the same writer. If two look at the same moment, the primary key refuses
-- the second insert (error 2627), which is tried again.
-- Index: the primary key. Locks: the row, until the transaction ends, in which publish follows.
insert into {writers} (writer, batch)
select @writer, -1
where not exists (
    select 1 from {writers} as there with (rowlock, updlock, readcommittedlock) where there.writer = @writer
);
update {writers} with (rowlock)
set batch = @batch
output inserted.batch
where writer = @writer and batch < @batch;

-- name: writer_last
-- Index: the primary key. Locks: none that lasts.
select batch from {writers} where writer = @writer;

-- name: publish
-- Returns the number. A message whose key is taken, even by an earlier one of them, is left out; the caller counts the
-- others. One statement for all of them, unlike push_many: it locks rows that no other transaction can see yet, the
-- locks last until the commit in any case, and they are not escalated. If another transaction pushes one of the keys
-- between the look (READCOMMITTEDLOCK, as in push) and the insert, the unique index refuses the insert (error 2601),
-- and the transaction is tried again. Indexes: {table}__staged_order, {table}__staged_key, {table}__key. One
-- transaction with writer_advance: a crash publishes none.
declare @given table (attempt char(32) collate Latin1_General_100_BIN2 not null primary key);
-- [expires]
declare @expires float = coalesce(cast(:expires as float), {expires});
-- [end]
insert into @given (attempt)
select distinct cast(entry.value as char(32))
from openjson(@attempts) as entry;
insert into {queue} (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at})
select
    payload, headers, @producer, coalesce(priority, 0), coalesce(group_key, @group), dedup_key, @now,
    coalesce(due_at, {default_due}), case when due_at > @now then '{pushed_scheduled}' else '{pushed_ready}' end{until}
from {staged} as batch
where write_id = @write and attempt in (select attempt from @given)
    and not exists (
        select 1 from {staged} as earlier
        where earlier.write_id = @write and earlier.attempt in (select attempt from @given)
            and earlier.dedup_key = batch.dedup_key and earlier.dedup_key is not null
            and (earlier.part < batch.part or (earlier.part = batch.part and earlier.place < batch.place))
    )
    and not exists (
        select 1 from {queue} as there with (readcommittedlock)
        where there.dedup_key = batch.dedup_key and there.dedup_key is not null
    )
order by part, place;
select rowcount_big() as pushed;

-- name: publish_topic
-- Push to a log what the JSON array :attempts of the write :write staged, in the order of their parts, all at once.
-- Returns the number. One statement for all of them, as publish.
-- Index: {table}__staged_order. Locks: none that another transaction waits for.
-- One transaction with writer_advance: a crash publishes none.
declare @given table (attempt char(32) collate Latin1_General_100_BIN2 not null primary key);
insert into @given (attempt)
select distinct cast(entry.value as char(32))
from openjson(@attempts) as entry;
insert into {log} (payload, headers, producer, group_key, pushed_at)
select payload, headers, @producer, group_key, @now
from {staged}
where write_id = @write and attempt in (select attempt from @given)
order by part, place;
select rowcount_big() as pushed;

-- name: unstage
-- In steps, because the locks of a statement are not escalated: a statement for a million messages takes three million
-- locks, and may run out of memory for them (error 1204). In a transaction of its own each step releases them.
-- Index: {table}__staged_order, the range of the write; then it reads the whole table, which holds the writes under way
-- only, and passes over what others are staging: two that waited for each other's rows would deadlock.
-- Locks: the rows that go. A crash leaves them for the next write.
declare @step int = 1000;
declare @deleted int = @step;
while @deleted = @step
begin
    delete top (@step) from {staged} with (rowlock)
    where write_id = @write;
    set @deleted = @@rowcount;
end;
set @deleted = @step;
while @deleted = @step
begin
    delete top (@step) from {staged} with (rowlock, readpast, readcommittedlock)
    where staged_at < dateadd(day, -1, @now);
    set @deleted = @@rowcount;
end;
