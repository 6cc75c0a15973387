-- create_ranges
-- The ranges that a subscription has claimed, in the order of the claims: its history. The next claim
-- begins after the last one. The first row has no messages: it says where the subscription begins, and so does that
-- of a seek.
-- A range with a lease_until is in progress. left_ids, a JSON array, are the messages that have left it, the last at
-- finished_at: completed before the others; or detached, and in apart_ids, too. A range that is finished has no
-- left_ids. When its lease expires, the messages that have not left it are detached, without being in apart_ids.
-- tq_events__s1__last is what a claim reads of the last range. No other statement changes its columns, so a claim does not
-- wait for a transaction that completes a range, and stays open.
-- Runs in one transaction: a crash leaves nothing.
declare @start bigint = :start;
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
create table tq_events__s1__ranges (
    id bigint identity (1, 1) not null constraint pk_tq_events__s1__ranges primary key clustered,
    first_offset bigint not null,
    last_offset bigint not null,
    messages int not null,
    ids_sum bigint not null,
    token uniqueidentifier null,
    consumer nvarchar(512) null,
    popped_at datetime2(6) not null,
    lease_until datetime2(6) null,
    finished_at datetime2(6) null,
    left_ids varchar(max) null,
    apart_ids varchar(max) null
);
alter table tq_events__s1__ranges set (lock_escalation = disable);
create index tq_events__s1__last on tq_events__s1__ranges (id) include (last_offset);
create index tq_events__s1__token on tq_events__s1__ranges (token) include (lease_until) where lease_until is not null;
create index tq_events__s1__lease on tq_events__s1__ranges (lease_until) where lease_until is not null;
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (@start, @start - 1, 0, 0, @now, @now);

-- create_topic
-- The log of a topic. Its rows are never changed.
-- Identities are given before commits. So the offset of a message, which says when it became visible, is in the runs:
-- a run is ids without a gap that were all committed when a session looked, and an offset is first_offset + id -
-- first_id. The run with the lowest offset is the last message that was dropped; at first 0, which never was. The holes
-- are the ids between runs: of transactions in flight, or rolled back.
-- No page locks, no lock escalation: a reader skips the rows of transactions in flight, and never waits for one that
-- has a page with other rows locked. The price: the index can be rebuilt, and not reorganized.
-- Runs in one transaction: a crash leaves nothing.
create table tq_events (
    id bigint identity (1, 1) not null constraint pk_tq_events primary key clustered with (allow_page_locks = off),
    pushed_at datetime2(6) not null,
    producer nvarchar(512) null,
    group_key varbinary(1020) null,
    headers nvarchar(max) null,
    payload nvarchar(max) not null
);
alter table tq_events set (lock_escalation = disable);
create table tq_events__runs (
    first_offset bigint not null constraint pk_tq_events__runs primary key clustered with (allow_page_locks = off),
    first_id bigint not null,
    last_id bigint not null
);
alter table tq_events__runs set (lock_escalation = disable);
create index tq_events__last_id on tq_events__runs (last_id) include (first_offset, first_id) with (allow_page_locks = off);
insert into tq_events__runs (first_offset, first_id, last_id)
values (0, 0, 0);
create table tq_events__holes (
    first_id bigint not null constraint pk_tq_events__holes primary key clustered,
    last_id bigint not null,
    seen_at datetime2(6) not null
);
alter table tq_events__holes set (lock_escalation = disable);
go
set ansi_nulls, quoted_identifier on;
go
-- Give the messages that have become visible their offsets: those above the last run, and those in holes. Do nothing if
-- another session does it just now. @all_holes: look at all holes, not only at the last hundred.
-- Offsets go by id, and what is pushed after a commit comes after what was committed: nothing above @upto, which is
-- read first, is looked at, and all that was committed before that is visible to the looks.
-- READPAST with READCOMMITTEDLOCK passes over the rows of transactions in flight, with READ_COMMITTED_SNAPSHOT and
-- without: it waits for none, and what it passes over is a hole until it is committed.
-- Indexes: the primary keys, that of the runs by last_id. Locks: an application lock, and the new runs and holes, until
-- the transaction ends; so never in one of a caller.
create procedure tq_events__sequence @all_holes bit as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @granted int;
    declare @resource nvarchar(255) = concat(N'tablequeue sequence ', object_id(N'tq_events'));
    declare @now datetime2(6) = sysutcdatetime();
    declare @next bigint;
    declare @last bigint;
    declare @upto bigint;
    declare @recent bigint = 0;
    declare @islands table (
        low bigint not null primary key,
        high bigint not null,
        first_id bigint not null,
        last_id bigint not null,
        seen_at datetime2(6) not null
    );
    begin transaction;
    exec @granted = sp_getapplock
        @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
    if @granted < 0
    begin
        commit transaction;
        return;
    end;
    select top (1) @next = first_offset + last_id - first_id + 1
    from tq_events__runs with (readcommittedlock)
    order by first_offset desc;
    select top (1) @last = last_id
    from tq_events__runs with (readcommittedlock)
    order by last_id desc;
    select top (1) @upto = id
    from tq_events with (readpast, readcommittedlock)
    where id > @last
    order by id desc;
    insert into @islands (low, high, first_id, last_id, seen_at)
    select min(numbered.id), max(numbered.id), @last + 1, 0, @now
    from (
        select fresh.id, fresh.id - row_number() over (order by fresh.id) as island
        from (
            select top (100000) id
            from tq_events with (readpast, readcommittedlock)
            where id > @last and id <= @upto
            order by id
        ) as fresh
    ) as numbered
    group by numbered.island;
    if @all_holes = 0
        select @recent = coalesce(min(recent.first_id), 0)
        from (select top (100) first_id from tq_events__holes with (readcommittedlock) order by first_id desc) as recent;
    insert into @islands (low, high, first_id, last_id, seen_at)
    select min(numbered.id), max(numbered.id), numbered.first_id, numbered.last_id, numbered.seen_at
    from (
        select
            hole.first_id, hole.last_id, hole.seen_at, message.id,
            message.id - row_number() over (partition by hole.first_id order by message.id) as island
        from tq_events__holes as hole with (readcommittedlock)
        inner join tq_events as message with (forceseek, readpast, readcommittedlock)
            on message.id between hole.first_id and hole.last_id
        where hole.first_id >= @recent
    ) as numbered
    group by numbered.first_id, numbered.last_id, numbered.seen_at, numbered.island;
    insert into tq_events__runs (first_offset, first_id, last_id)
    select @next + sum(high - low + 1) over (order by low rows unbounded preceding) - (high - low + 1), low, high
    from @islands;
    delete from tq_events__holes
    where first_id in (select island.first_id from @islands as island);
    insert into tq_events__holes (first_id, last_id, seen_at)
    select rest.low, rest.high, rest.seen_at
    from (
        select
            coalesce(lag(high) over (partition by first_id order by low) + 1, first_id) as low, low - 1 as high, seen_at
        from @islands
        union all
        select max(high) + 1, last_id, seen_at
        from @islands
        group by first_id, last_id, seen_at
    ) as rest
    where rest.low <= rest.high;
    commit transaction;
end;

-- create_topic_groups
-- The log of a topic with groups refuses a message without one, from whomever: an ordered
-- subscription needs it.
-- Locks: the log, for a moment. Runs in one transaction: a crash leaves nothing.
alter table tq_events add constraint ck_tq_events__grouped check (group_key is not null);

-- drop_ranges
-- Drop the ranges of a subscription.
-- It waits for transactions that use the table. In one transaction with its queue: a crash leaves all or nothing. On
-- MariaDB and MySQL, the catalogue forgot the subscription before: a crash leaves a table that the next create of this
-- name drops.
drop table if exists tq_events__s1__ranges;

-- drop_topic
-- Drop the log of a topic, with its messages.
-- In one transaction: a crash leaves all or nothing.
drop procedure if exists tq_events__sequence;
drop table if exists tq_events__holes;
drop table if exists tq_events__runs;
drop table if exists tq_events;

-- publish_topic
-- Push to a log what the JSON array :attempts of the write :write staged, in the order of their parts, all at once.
-- Returns the number. One statement for all of them, as publish.
-- Index: tq_events__staged_order. Locks: none that another transaction waits for.
-- One transaction with writer_advance: a crash publishes none.
declare @write varchar(255) = cast(:write as varchar(255));
declare @attempts nvarchar(max) = cast(:attempts as nvarchar(max));
declare @producer nvarchar(512) = cast(:producer as nvarchar(512));
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
declare @given table (attempt char(32) collate Latin1_General_100_BIN2 not null primary key);
insert into @given (attempt)
select distinct cast(entry.value as char(32))
from openjson(@attempts) as entry;
insert into tq_events (payload, headers, producer, group_key, pushed_at)
select payload, headers, @producer, group_key, @now
from tq_events__staged
where write_id = @write and attempt in (select attempt from @given)
order by part, place;
select rowcount_big() as pushed;

-- range_absorb
-- Delete the detached messages that a seek decides about: those that no consumer has had, at any offset,
-- because they are in the log; and those with an offset from :start on that the log still has, because they come
-- again. With :force, the latter even if they are in progress: their leases end.
-- A message before :start that some consumer has had stays, and so does one that the log does not have any more. 1,000
-- a statement; see create. Each is asked again when it is locked: a consumer may have had one since it was found.
-- Indexes: the primary keys, runs by last_id; all detached messages are read.
-- Locks: the rows; locked rows are skipped, and range_remaining finds them. In one transaction with range_seek.
declare @start bigint = :start;
declare @force bit = :force;
declare @deleted bigint = 1000;
declare @number bigint = 0;
declare @gone table (id bigint not null primary key);
insert into @gone (id)
select message.id
from tq_events__s1 as message with (readpast, readcommittedlock)
where (@force = 1 or message.state <> 'in_progress') and (message.first_popped_at is null or exists (
        select 1
        from (select top (1) first_offset, first_id from tq_events__runs where last_id >= message.id order by last_id) as run
        where run.first_id <= message.id and run.first_offset + message.id - run.first_id >= @start
            and run.first_offset > (select min(every.first_offset) from tq_events__runs as every)
    ));
while @deleted > 0
begin
    delete top (1000) from message
    from tq_events__s1 as message with (rowlock, readpast, readcommittedlock, forceseek)
    where message.id in (select one.id from @gone as one) and (@force = 1 or message.state <> 'in_progress')
        and (message.first_popped_at is null or exists (
            select 1
            from (select top (1) first_offset, first_id from tq_events__runs where last_id >= message.id order by last_id) as run
            where run.first_id <= message.id and run.first_offset + message.id - run.first_id >= @start
                and run.first_offset > (select min(every.first_offset) from tq_events__runs as every)
        ));
    set @deleted = rowcount_big();
    set @number = @number + @deleted;
end;
select @number as deleted;

-- range_claim
-- Claim the next range of up to :n messages under a new lease: one row for all of them. If too few have offsets, it
-- sequences first; see create_topic.
-- One claim of a subscription at a time: each begins after the last range, and the application lock comes before the
-- look at it. Locks: the application lock, until the transaction ends, so never in one of a caller. A claim that does
-- not get it within the lock time-out claims nothing.
-- READPAST passes over the runs of a session that is sequencing. All runs up to one that is committed are committed,
-- too, but their locks end one by one: so the pieces are read without it. If some are missing, because messages were
-- dropped meanwhile, nothing is claimed; the next claim begins after them. At the end of the log @begins is one more
-- than @ends, and nothing is claimed.
-- Indexes: tq_events__s1__last, the primary keys. The messages are read after the commit: they do not change.
-- A consumer that dies leaves its range in progress; sweep detaches its messages when the lease has expired.
declare @n bigint = :n;
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @consumer nvarchar(512) = cast(:consumer as nvarchar(512));
declare @lease float = cast(:lease as float);
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
declare @until datetime2(6) = dateadd(microsecond, cast(round((@lease - floor(@lease / 60) * 60) * 1e6, 0) as int),
    dateadd(minute, cast(floor(@lease / 60) as int), @now));
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue claim ', object_id(N'tq_events__s1__ranges'));
declare @begins bigint;
declare @ends bigint;
declare @dropped bigint;
declare @pieces table (first_offset bigint not null primary key, low bigint not null, high bigint not null);
select top (1) @begins = last_offset + 1
from tq_events__s1__ranges with (index (tq_events__s1__last), readcommittedlock)
order by id desc;
select top (1) @ends = first_offset + last_id - first_id
from tq_events__runs with (readpast, readcommittedlock)
order by first_offset desc;
if @ends - @begins + 1 < @n
    exec tq_events__sequence 0;
begin transaction;
exec @granted = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction';
select top (1) @begins = last_offset + 1
from tq_events__s1__ranges with (index (tq_events__s1__last), readcommittedlock)
order by id desc;
select @dropped = min(first_offset), @begins = iif(@begins > min(first_offset), @begins, min(first_offset) + 1)
from tq_events__runs with (readcommittedlock);
select top (1) @ends = first_offset + last_id - first_id
from tq_events__runs with (readpast, readcommittedlock)
order by first_offset desc;
if @ends > @begins + @n - 1
    set @ends = @begins + @n - 1;
insert into @pieces (first_offset, low, high)
select
    run.first_offset,
    iif(run.first_offset < @begins, run.first_id + @begins - run.first_offset, run.first_id),
    iif(run.first_offset + run.last_id - run.first_id > @ends, run.first_id + @ends - run.first_offset, run.last_id)
from tq_events__runs as run with (forceseek, readcommittedlock)
where run.first_offset > @dropped
    and run.first_offset <= @ends
    and run.first_offset >= (
        select max(before.first_offset) from tq_events__runs as before with (readcommittedlock)
        where before.first_offset <= @begins
    );
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, token, consumer, popped_at, lease_until)
select
    @begins, @ends, @ends - @begins + 1, sum((low + high) * (high - low + 1) / 2), @token, @consumer, @now, @until
from @pieces
where @granted >= 0 and @begins <= @ends and not exists (select 1 from tq__paused where name = 'tq_events__s1' and until > @now)
having sum(high - low + 1) = @ends - @begins + 1;
if @@rowcount = 0
    delete from @pieces;
commit transaction;
select
    message.id, message.payload, message.headers, 1, message.pushed_at, @now, @until, 0,
    convert(nvarchar(510), message.group_key) as group_key, null, null, null
from @pieces as piece
inner join tq_events as message with (forceseek, readcommittedlock) on message.id between piece.low and piece.high
order by piece.first_offset, message.id;

-- range_complete
-- Complete the range that is held under :token: all :number messages of it, which have this :sum of
-- ids.
-- Index: tq_events__s1__token. Locks: the row. A crash leaves it in progress until its lease expires.
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @number bigint = :number;
declare @sum bigint = :sum;
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
update held
set finished_at = @now, lease_until = null
output inserted.id
from tq_events__s1__ranges as held with (index (tq_events__s1__token), rowlock)
where held.token = @token and held.lease_until is not null
    and held.messages = @number and held.ids_sum = @sum and held.left_ids is null;

-- range_detach
-- The messages of :ids, which ranges under :token hold, become rows of the subscription's queue: ready after :delay
-- seconds, or dead letters if :attempts is :max_attempts.
-- A seek leaves no message both detached and in the log. Older versions did: then this is its state, unless a consumer
-- holds it detached.
-- FOR XML PATH joins ids, as in range_mark.
-- Indexes: tq_events__s1__token, the primary keys, sought as in complete. Locks: the rows, of at most 1,000 messages. In
-- one transaction with range_hold and range_mark: a crash leaves the messages in progress until the lease expires.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @max_attempts int = :max_attempts;
declare @delay float = cast(:delay as float);
declare @error nvarchar(max) = cast(:error as nvarchar(max));
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
declare @attempts int = :attempts;
declare @due datetime2(6) = dateadd(microsecond, cast(round((@delay - floor(@delay / 60) * 60) * 1e6, 0) as int),
    dateadd(minute, cast(floor(@delay / 60) as int), @now));
declare @left table (
    id bigint not null primary key,
    range_id bigint not null,
    popped_at datetime2(6) not null,
    consumer nvarchar(512) null
);
insert into @left (id, range_id, popped_at, consumer)
select given.id, held.id, held.popped_at, held.consumer
from (
    select id, first_offset, last_offset, popped_at, consumer
    from tq_events__s1__ranges with (index (tq_events__s1__token), rowlock, updlock, readcommittedlock)
    where token = @token and lease_until is not null
) as held
cross join openjson(@ids) with (id bigint '$') as given
cross apply (
    select top (1) run.first_offset + given.id - run.first_id as message_offset
    from tq_events__runs as run
    where run.last_id >= given.id
    order by run.last_id
) as place
where place.message_offset between held.first_offset and held.last_offset;
delete from message
from tq_events__s1_history as message with (rowlock, forceseek)
where message.id in (select one.id from @left as one);
delete from message
from tq_events__s1 as message with (rowlock, forceseek)
where message.id in (select one.id from @left as one) and message.state <> 'in_progress';
insert into tq_events__s1 (
    id, state, attempts, pushed_at, due_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors,
    payload
)
select
    one.id,
    case when @attempts >= @max_attempts then 'dead' when @delay > 0 then 'scheduled' else 'ready' end,
    @attempts, message.pushed_at, case when @attempts < @max_attempts and @delay > 0 then @due end,
    one.popped_at, one.popped_at, message.group_key, message.producer, one.consumer, message.headers,
    case
        when @error is not null then (
            select
                @attempts as attempt, convert(nvarchar(33), @now, 126) as at, one.consumer as consumer, @error as error
            for json path, include_null_values
        )
    end,
    message.payload
from @left as one
inner join tq_events as message with (forceseek) on message.id = one.id
where not exists (select 1 from tq_events__s1 as held where held.id = one.id);
update held
set apart_ids = concat(coalesce(left(held.apart_ids, len(held.apart_ids) - 1) + ',', '['), marked.ids, ']')
from (
    select
        one.range_id,
        stuff(
            (select concat(',', other.id) from @left as other where other.range_id = one.range_id for xml path('')),
            1, 1, ''
        ) as ids
    from @left as one
    group by one.range_id
) as marked
inner join tq_events__s1__ranges as held with (rowlock, forceseek) on held.id = marked.range_id
where held.token = @token and held.lease_until is not null;

-- range_due
-- Whether a sweep has something to do: for ranges whose lease has expired, for detached messages that are
-- due or abandoned; and whether a detached message is ready.
-- Indexes: tq_events__s1__lease, those of the states; one entry of each. Locks: none that lasts. READPAST passes over what
-- others are finishing.
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
select
    case
        when exists (
            select 1 from tq_events__s1__ranges with (readpast, readcommittedlock)
            where lease_until is not null and lease_until <= @now
        ) then 1
        else 0
    end as expired,
    case
        when exists (
            select 1 from tq_events__s1 with (readpast, readcommittedlock) where state = 'scheduled' and due_at <= @now
        ) then 1
        when exists (
            select 1 from tq_events__s1 with (readpast, readcommittedlock) where state = 'in_progress' and lease_until <= @now
        ) then 1
        else 0
    end as due,
    case
        when exists (select 1 from tq_events__s1 with (readpast, readcommittedlock) where state = 'ready') then 1
        else 0
    end as ready;

-- range_end_leases
-- End the leases of the ranges that have messages with an offset from :start on, for a seek that is
-- forced. Their messages are then detached as if it had expired.
-- Index: tq_events__s1__lease. Locks: the rows; locked rows are skipped. In one transaction with range_seek.
declare @start bigint = :start;
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
update held
set lease_until = @now
from tq_events__s1__ranges as held with (rowlock, readpast, readcommittedlock)
where held.lease_until > @now and held.last_offset >= @start;

-- range_expire
-- The messages that have not left range :id, whose lease has expired, become rows of the subscription's queue: ready,
-- or dead letters if one attempt was all they had. The range is not in progress any more.
-- Indexes: the primary keys. Locks: the rows. No statement writes more than 1,000 messages, see create. In one
-- transaction with range_expired: a crash leaves all or nothing.
declare @id bigint = :id;
declare @max_attempts int = :max_attempts;
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
declare @after bigint = 0;
declare @upto bigint;
declare @popped_at datetime2(6);
declare @consumer nvarchar(512);
declare @begins bigint;
declare @ends bigint;
declare @left_ids varchar(max);
declare @gone table (id bigint not null primary key);
declare @lost table (id bigint not null primary key);
select @begins = first_offset, @ends = last_offset, @popped_at = popped_at, @consumer = consumer, @left_ids = left_ids
from tq_events__s1__ranges
where id = @id;
insert into @gone (id)
select distinct gone.id
from openjson(@left_ids) with (id bigint '$') as gone;
insert into @lost (id)
select message.id
from tq_events__runs as run with (forceseek)
inner join tq_events as message with (forceseek)
    on message.id between iif(run.first_offset < @begins, run.first_id + @begins - run.first_offset, run.first_id)
        and iif(run.first_offset + run.last_id - run.first_id > @ends, run.first_id + @ends - run.first_offset, run.last_id)
where run.first_offset <= @ends
    and run.first_offset >= (
        select max(before.first_offset) from tq_events__runs as before where before.first_offset <= @begins
    )
    and not exists (select 1 from @gone as gone where gone.id = message.id);
while 1 = 1
begin
    select @upto = max(step.id)
    from (select top (1000) one.id from @lost as one where one.id > @after order by one.id) as step;
    if @upto is null break;
    delete from message
    from tq_events__s1_history as message with (rowlock, forceseek)
    where message.id in (select one.id from @lost as one where one.id > @after and one.id <= @upto);
    delete from message
    from tq_events__s1 as message with (rowlock, forceseek)
    where message.id in (select one.id from @lost as one where one.id > @after and one.id <= @upto)
        and message.state <> 'in_progress';
    insert into tq_events__s1 (
        id, state, attempts, pushed_at, first_popped_at, popped_at, group_key, producer, consumer, headers, errors,
        payload
    )
    select
        message.id, case when @max_attempts <= 1 then 'dead' else 'ready' end, 1, message.pushed_at, @popped_at,
        @popped_at, message.group_key, message.producer, @consumer, message.headers,
        (
            select
                1 as attempt, convert(nvarchar(33), @now, 126) as at, @consumer as consumer,
                N'lease expired' as error
            for json path, include_null_values
        ),
        message.payload
    from @lost as one
    inner join tq_events as message with (forceseek) on message.id = one.id
    where one.id > @after and one.id <= @upto
        and not exists (select 1 from tq_events__s1 as held where held.id = one.id);
    set @after = @upto;
end;
update tq_events__s1__ranges with (rowlock)
set lease_until = null
where id = @id;

-- range_expired
-- Up to :n ranges whose lease has expired. Index: tq_events__s1__lease. Locks: the rows; locked rows are skipped.
declare @n bigint = :n;
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
select top (@n) id
from tq_events__s1__ranges with (index (tq_events__s1__lease), rowlock, readpast, updlock, readcommittedlock)
where lease_until is not null and lease_until <= @now
order by lease_until;

-- range_extend
-- Extend the leases on the ranges under :token that hold messages of :ids: they end :lease seconds from now.
-- Returns these messages.
-- Indexes: tq_events__s1__token, the index of the runs by last_id, the primary key. Locks: the rows. A crash leaves all
-- extended, or none.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @lease float = cast(:lease as float);
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
declare @until datetime2(6) = dateadd(microsecond, cast(round((@lease - floor(@lease / 60) * 60) * 1e6, 0) as int),
    dateadd(minute, cast(floor(@lease / 60) as int), @now));
declare @found table (range_id bigint not null, id bigint not null, primary key (range_id, id));
insert into @found (range_id, id)
select distinct held.id, given.id
from (
    select id, first_offset, last_offset, left_ids
    from tq_events__s1__ranges with (index (tq_events__s1__token), rowlock, updlock, readcommittedlock)
    where token = @token and lease_until is not null
) as held
cross join openjson(@ids) with (id bigint '$') as given
cross apply (
    select top (1) run.first_id, run.first_offset + given.id - run.first_id as message_offset
    from tq_events__runs as run
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
from tq_events__s1__ranges as held with (rowlock, forceseek)
where held.id in (select one.range_id from @found as one) and held.token = @token and held.lease_until is not null;
select one.id, @until as lease_until from @found as one;

-- range_find
-- Message :id, if it is in the log, and it is ready or a range in progress holds it. After a seek the last
-- range counts.
-- Indexes: the primary keys, that of the runs by last_id; the ranges are read backwards until one has it.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @id bigint = :id;
declare @offset bigint;
declare @position bigint;
declare @consumer nvarchar(512);
declare @popped_at datetime2(6);
declare @lease_until datetime2(6);
declare @left_ids varchar(max);
select top (1) @offset = case when first_id <= @id then first_offset + @id - first_id end
from tq_events__runs
where last_id >= @id
order by last_id;
select top (1) @position = last_offset + 1
from tq_events__s1__ranges with (index (tq_events__s1__last), readcommittedlock)
order by id desc;
select @position = iif(@position > min(first_offset), @position, min(first_offset) + 1)
from tq_events__runs;
select top (1) @consumer = consumer, @popped_at = popped_at, @lease_until = lease_until, @left_ids = left_ids
from tq_events__s1__ranges
where first_offset <= @offset and last_offset >= @offset and @offset < @position
order by id desc;
select
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, finished_at, errors
from (
    select
        id, payload, headers, case when @popped_at is null then 'ready' else 'in_progress' end as state,
        case when @popped_at is null then 0 else 1 end as attempts, 0 as priority,
        convert(nvarchar(510), group_key) as group_key, cast(null as nvarchar(510)) as dedup_key, producer,
        @consumer as consumer, pushed_at, cast(null as datetime2(6)) as due_at, @popped_at as first_popped_at,
        @popped_at as popped_at, @lease_until as lease_until, cast(null as datetime2(6)) as finished_at,
        cast(null as nvarchar(max)) as errors
    from tq_events with (readpast, readcommittedlock)
    where id = @id
) as found
where @offset is null or @offset >= @position
    or (
        @lease_until is not null
        and not exists (select 1 from openjson(@left_ids) with (id bigint '$') as gone where gone.id = @id)
    );

-- range_finished
-- The last :n messages with ids from :low to :high finished from :since on and before :until, highest
-- id first: those that ranges finished (with :final only those that are not in progress any more), if the log still
-- has them, and those of the history of the subscription. Messages that left a range have the time of the last ones
-- that did. If a message was finished again after a seek, its last pop counts.
-- Of the intervals of ids only the first ones are read, which have so many finished messages, whatever was read again.
-- Indexes: the primary keys; all ranges are read.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @n bigint = :n;
declare @low bigint = :low;
declare @high bigint = :high;
declare @since datetime2(6) = cast(:since as datetime2(6));
declare @until datetime2(6) = cast(:until as datetime2(6));
declare @final bit = :final;
declare @reach bigint;
declare @spans table (
    range_id bigint not null,
    low bigint not null,
    high bigint not null,
    consumer nvarchar(512) null,
    popped_at datetime2(6) not null,
    finished_at datetime2(6) not null,
    left_ids varchar(max) null,
    apart_ids varchar(max) null,
    sure bigint not null,
    primary key (range_id, low)
);
insert into @spans (range_id, low, high, consumer, popped_at, finished_at, left_ids, apart_ids, sure)
select
    span.range_id, span.low, span.high, span.consumer, span.popped_at, span.finished_at, span.left_ids, span.apart_ids,
    iif(span.high - span.low + 1 > span.others, span.high - span.low + 1 - span.others, 0)
from (
    select
        range_id, iif(low > @low, low, @low) as low, iif(high < @high, high, @high) as high, consumer, popped_at,
        finished_at, left_ids, apart_ids, messages - finished as others
    from (
        select
            held.id as range_id, held.first_offset, held.last_offset, held.messages, held.consumer, held.popped_at,
            held.lease_until, held.finished_at, held.left_ids, held.apart_ids, (
                case
                    when left_ids is not null then (select count(*) from openjson(left_ids))
                    when finished_at is not null then messages
                    else 0
                end - (select count(*) from openjson(apart_ids))
            ) as finished,
            run.first_id + iif(run.first_offset < held.first_offset, held.first_offset - run.first_offset, 0) as low,
            iif(
                run.first_offset + run.last_id - run.first_id > held.last_offset,
                run.first_id + held.last_offset - run.first_offset, run.last_id
            ) as high
        from tq_events__s1__ranges as held
        inner join tq_events__runs as run on run.first_offset <= held.last_offset
            and run.first_offset >= coalesce(
                (select max(before.first_offset) from tq_events__runs as before where before.first_offset <= held.first_offset),
                0
            )
    ) as piece
    where finished > 0 and (lease_until is null or @final = 0)
        and finished_at >= @since and finished_at < @until and low <= @high and high >= @low
) as span;
select @reach = min(counted.low)
from (
    select low, sum(sure) over (order by low desc, range_id rows unbounded preceding) - sure as so_far from @spans
) as counted
where counted.so_far < @n * (1 + (select count(*) from tq_events__s1__ranges where messages = 0));
select top (@n)
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, finished_at, errors
from (
    select
        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
        first_popped_at, popped_at, lease_until, finished_at, errors,
        row_number() over (partition by id order by popped_at desc) as place
    from (
        select
            id, payload, headers, 'finished' as state, 1 as attempts, 0 as priority,
            convert(nvarchar(510), group_key) as group_key, cast(null as nvarchar(510)) as dedup_key, producer,
            consumer, pushed_at, cast(null as datetime2(6)) as due_at, popped_at as first_popped_at, popped_at,
            cast(null as datetime2(6)) as lease_until, finished_at, cast(null as nvarchar(max)) as errors
        from @spans as span
        cross apply (
            select top (@n) log.id, log.pushed_at, log.producer, log.group_key, log.headers, log.payload
            from tq_events as log with (readpast, readcommittedlock)
            where log.id between span.low and span.high
                and (span.left_ids is null or log.id in (select id from openjson(span.left_ids) with (id bigint '$')))
                and not exists (
                    select 1 from openjson(span.apart_ids) with (id bigint '$') as one where one.id = log.id
                )
            order by log.id desc
        ) as log
        where span.high >= @reach
        union all
        select
            id, payload, headers,
            coalesce(outcome, case when finished_at is null then 'in_progress' else 'finished' end) as state, attempts,
            priority, group_key, dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
            cast(null as datetime2(6)) as lease_until, finished_at, errors
        from tq_events__s1_history
        where id between @low and @high and finished_at >= @since and finished_at < @until
    ) as each_one
) as finished
where place = 1
order by id desc;

-- range_finished_bounds
-- The lowest and the highest id of the ranges that finished messages from :since on and before
-- :until, and of the messages of the subscription's history that were: no other id has such a message.
-- Indexes: the primary keys, tq_events__s1__finished; all ranges are read.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
declare @since datetime2(6) = cast(:since as datetime2(6));
declare @until datetime2(6) = cast(:until as datetime2(6));
select min(low) as low, max(high) as high
from (
    select low, high
    from (
        select
            held.id as range_id, held.first_offset, held.last_offset, held.messages, held.consumer, held.popped_at,
            held.lease_until, held.finished_at, held.left_ids, held.apart_ids, (
                case
                    when left_ids is not null then (select count(*) from openjson(left_ids))
                    when finished_at is not null then messages
                    else 0
                end - (select count(*) from openjson(apart_ids))
            ) as finished,
            run.first_id + iif(run.first_offset < held.first_offset, held.first_offset - run.first_offset, 0) as low,
            iif(
                run.first_offset + run.last_id - run.first_id > held.last_offset,
                run.first_id + held.last_offset - run.first_offset, run.last_id
            ) as high
        from tq_events__s1__ranges as held
        inner join tq_events__runs as run on run.first_offset <= held.last_offset
            and run.first_offset >= coalesce(
                (select max(before.first_offset) from tq_events__runs as before where before.first_offset <= held.first_offset),
                0
            )
    ) as piece
    where finished > 0 and finished_at >= @since and finished_at < @until
    union all
    select min(id), max(id) from tq_events__s1_history where finished_at >= @since and finished_at < @until
) as bounds;

-- range_floor
-- What a subscription still needs: the first offset of its ranges in progress, null if there is none; and
-- the one at which its next claim begins.
-- Indexes: tq_events__s1__lease, tq_events__s1__last. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it is refused
-- (error 1222) while a transaction is finishing a range, which may be rolled back; topics.py says what then.
select top (1)
    (select min(held.first_offset) from tq_events__s1__ranges as held with (nowait) where held.lease_until is not null) as first,
    last_offset + 1 as position
from tq_events__s1__ranges with (index (tq_events__s1__last), readcommittedlock)
order by id desc;

-- range_hold
-- Lock the ranges under :token. Return the messages of :ids that they hold: those that have not left them.
-- Indexes: tq_events__s1__token, the index of the runs by last_id. Locks: the rows.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @held table (
    id bigint not null primary key,
    first_offset bigint not null,
    last_offset bigint not null,
    left_ids varchar(max) null
);
declare @gone table (id bigint not null primary key);
insert into @held (id, first_offset, last_offset, left_ids)
select id, first_offset, last_offset, left_ids
from tq_events__s1__ranges with (index (tq_events__s1__token), rowlock, updlock, readcommittedlock)
where token = @token and lease_until is not null;
insert into @gone (id)
select distinct gone.id
from @held as held
cross apply openjson(held.left_ids) with (id bigint '$') as gone;
select given.id
from openjson(@ids) with (id bigint '$') as given
cross apply (
    select top (1) run.first_id, run.first_offset + given.id - run.first_id as message_offset
    from tq_events__runs as run
    where run.last_id >= given.id
    order by run.last_id
) as place
where place.first_id <= given.id
    and exists (
        select 1 from @held as held where place.message_offset between held.first_offset and held.last_offset
    )
    and not exists (select 1 from @gone as gone where gone.id = given.id);

-- range_live
-- The last :n messages with ids from :low to :high that are live, in any state, highest id first: the detached ones,
-- those that ranges in progress hold, and those that no range has. A detached message comes once.
-- Indexes: the primary keys, tq_events__s1__lease, that of the runs by last_id.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @n bigint = :n;
declare @low bigint = :low;
declare @high bigint = :high;
declare @spans table (low bigint not null primary key, high bigint not null, sure bigint not null);
insert into @spans (low, high, sure)
select span.low, span.high, case when span.messages > 0 then span.high - span.low + 1 else 0 end
from (
    select iif(low > @low, low, @low) as low, iif(high < @high, high, @high) as high, messages
    from (
        select low, high, high - low + 1 as messages
        from (
            select
                iif(run.first_offset < next.position, run.first_id + next.position - run.first_offset, run.first_id)
                    as low,
                run.last_id as high
            from (
                select iif(last.position > first.position, last.position, first.position) as position
                from (select max(last_offset + 1) as position from tq_events__s1__ranges where id = (select max(id) from tq_events__s1__ranges))
                    as last
                cross join (select min(first_offset) + 1 as position from tq_events__runs) as first
            ) as next
            inner join tq_events__runs as run on run.first_offset + run.last_id - run.first_id >= next.position
                and run.first_offset >= coalesce(
                    (select max(before.first_offset) from tq_events__runs as before where before.first_offset <= next.position),
                    0
                )
        ) as after_it
        union all
        select max(last_id) + 1, cast(9223372036854775807 as bigint), 0 from tq_events__runs
        union all
        select first_id, last_id, 0 from tq_events__holes
    ) as unclaimed
    where high >= @low and low <= @high
) as span;
select top (@n)
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, finished_at, errors
from (
    select
        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
        first_popped_at, popped_at, lease_until, finished_at, errors,
        row_number() over (partition by id order by attempts desc) as place
    from (
        select
            id, payload, headers, state, attempts, priority, convert(nvarchar(510), group_key) as group_key,
            convert(nvarchar(510), dedup_key) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at,
            popped_at, lease_until, cast(null as datetime2(6)) as finished_at, errors
        from tq_events__s1
        where id between @low and @high
        union all
        select
            id, payload, headers, 'in_progress' as state, 1 as attempts, 0 as priority,
            convert(nvarchar(510), group_key) as group_key, cast(null as nvarchar(510)) as dedup_key, producer,
            consumer, pushed_at, cast(null as datetime2(6)) as due_at, popped_at as first_popped_at, popped_at,
            lease_until, cast(null as datetime2(6)) as finished_at, cast(null as nvarchar(max)) as errors
        from (
            select
                held.id as range_id, held.first_offset, held.last_offset, held.messages, held.consumer, held.popped_at,
                held.lease_until, held.finished_at, held.left_ids, held.apart_ids, (
                    case
                        when left_ids is not null then (select count(*) from openjson(left_ids))
                        when finished_at is not null then messages
                        else 0
                    end - (select count(*) from openjson(apart_ids))
                ) as finished,
                run.first_id + iif(run.first_offset < held.first_offset, held.first_offset - run.first_offset, 0) as low,
                iif(
                    run.first_offset + run.last_id - run.first_id > held.last_offset,
                    run.first_id + held.last_offset - run.first_offset, run.last_id
                ) as high
            from tq_events__s1__ranges as held
            inner join tq_events__runs as run on run.first_offset <= held.last_offset
                and run.first_offset >= coalesce(
                    (select max(before.first_offset) from tq_events__runs as before where before.first_offset <= held.first_offset),
                    0
                )
        ) as piece
        cross apply (
            select top (@n) log.id, log.pushed_at, log.producer, log.group_key, log.headers, log.payload
            from tq_events as log with (readpast, readcommittedlock)
            where log.id between piece.low and piece.high and log.id between @low and @high
                and not exists (
                    select 1 from openjson(piece.left_ids) with (id bigint '$') as gone where gone.id = log.id
                )
            order by log.id desc
        ) as log
        where piece.lease_until is not null
        union all
        select
            id, payload, headers, 'ready' as state, 0 as attempts, 0 as priority,
            convert(nvarchar(510), group_key) as group_key, cast(null as nvarchar(510)) as dedup_key, producer,
            cast(null as nvarchar(512)) as consumer, pushed_at, cast(null as datetime2(6)) as due_at,
            cast(null as datetime2(6)) as first_popped_at, cast(null as datetime2(6)) as popped_at,
            cast(null as datetime2(6)) as lease_until, cast(null as datetime2(6)) as finished_at,
            cast(null as nvarchar(max)) as errors
        from (
            select low, high, sum(sure) over (order by low desc rows unbounded preceding) - sure as so_far from @spans
        ) as span
        cross apply (
            select top (@n) id, pushed_at, producer, group_key, headers, payload
            from tq_events with (readpast, readcommittedlock)
            where id between span.low and span.high
            order by id desc
        ) as log
        where span.so_far < @n
    ) as each_one
) as live
where place = 1
order by id desc;

-- range_live_bounds
-- The lowest and the highest id of the live messages of a subscription, and of ranges in progress.
-- Indexes: the primary keys, tq_events__s1__lease.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @last bigint;
select @last = max(id)
from tq_events with (readpast, readcommittedlock);
select min(low) as low, max(high) as high
from (
    select min(id) as low, max(id) as high from tq_events__s1
    union all
    select low, high from (
        select
            held.id as range_id, held.first_offset, held.last_offset, held.messages, held.consumer, held.popped_at,
            held.lease_until, held.finished_at, held.left_ids, held.apart_ids, (
                case
                    when left_ids is not null then (select count(*) from openjson(left_ids))
                    when finished_at is not null then messages
                    else 0
                end - (select count(*) from openjson(apart_ids))
            ) as finished,
            run.first_id + iif(run.first_offset < held.first_offset, held.first_offset - run.first_offset, 0) as low,
            iif(
                run.first_offset + run.last_id - run.first_id > held.last_offset,
                run.first_id + held.last_offset - run.first_offset, run.last_id
            ) as high
        from tq_events__s1__ranges as held
        inner join tq_events__runs as run on run.first_offset <= held.last_offset
            and run.first_offset >= coalesce(
                (select max(before.first_offset) from tq_events__runs as before where before.first_offset <= held.first_offset),
                0
            )
    ) as piece where lease_until is not null
    union all
    select low, iif(high < @last, high, @last) from (
        select low, high, high - low + 1 as messages
        from (
            select
                iif(run.first_offset < next.position, run.first_id + next.position - run.first_offset, run.first_id)
                    as low,
                run.last_id as high
            from (
                select iif(last.position > first.position, last.position, first.position) as position
                from (select max(last_offset + 1) as position from tq_events__s1__ranges where id = (select max(id) from tq_events__s1__ranges))
                    as last
                cross join (select min(first_offset) + 1 as position from tq_events__runs) as first
            ) as next
            inner join tq_events__runs as run on run.first_offset + run.last_id - run.first_id >= next.position
                and run.first_offset >= coalesce(
                    (select max(before.first_offset) from tq_events__runs as before where before.first_offset <= next.position),
                    0
                )
        ) as after_it
        union all
        select max(last_id) + 1, cast(9223372036854775807 as bigint), 0 from tq_events__runs
        union all
        select first_id, last_id, 0 from tq_events__holes
    ) as unclaimed
) as bounds
where low <= high;

-- range_lock
-- Try to get the lock of a subscription's claims until the transaction ends; return whether it was free.
-- Index: none. Locks: an application lock, no rows.
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue claim ', object_id(N'tq_events__s1__ranges'));
exec @granted = sp_getapplock
    @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
select case when @granted >= 0 then 1 else 0 end as granted;

-- range_mark
-- Mark the messages of :ids, which ranges under :token hold, as left. A range is finished when all have left it.
-- Indexes: tq_events__s1__token, the primary key. Locks: the rows, which range_hold has locked. In one transaction with it.
-- A crash leaves the messages in progress until the lease expires.
-- FOR XML PATH joins the ids: STRING_AGG would need SQL Server 2017.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
declare @left table (range_id bigint not null, id bigint not null, primary key (range_id, id));
insert into @left (range_id, id)
select held.id, given.id
from (
    select id, first_offset, last_offset
    from tq_events__s1__ranges with (index (tq_events__s1__token), rowlock, updlock, readcommittedlock)
    where token = @token and lease_until is not null
) as held
cross join openjson(@ids) with (id bigint '$') as given
cross apply (
    select top (1) run.first_offset + given.id - run.first_id as message_offset
    from tq_events__runs as run
    where run.last_id >= given.id
    order by run.last_id
) as place
where place.message_offset between held.first_offset and held.last_offset;
update held
set finished_at = @now,
    left_ids = case
        when held.messages > gone.number + marked.number
            then concat(coalesce(left(held.left_ids, len(held.left_ids) - 1) + ',', '['), marked.ids, ']')
    end,
    lease_until = case when held.messages > gone.number + marked.number then held.lease_until end
from (
    select
        one.range_id, count(*) as number,
        stuff(
            (select concat(',', other.id) from @left as other where other.range_id = one.range_id for xml path('')),
            1, 1, ''
        ) as ids
    from @left as one
    group by one.range_id
) as marked
inner join tq_events__s1__ranges as held with (rowlock, forceseek) on held.id = marked.range_id
cross apply (select count(*) as number from openjson(held.left_ids)) as gone
where held.token = @token and held.lease_until is not null;

-- range_note
-- Note as a finished range what a :consumer has read by itself, :age seconds long: all before the offset
-- :start. Nothing is noted while ranges are in progress, which are counted.
-- Indexes: tq_events__s1__last, tq_events__s1__lease. Locks: range_wait comes before it, so that it sees the last claim.
declare @start bigint = :start;
declare @consumer nvarchar(512) = cast(:consumer as nvarchar(512));
declare @age float = cast(:age as float);
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
declare @begun datetime2(6) = dateadd(microsecond, cast(round(((-@age) - floor((-@age) / 60) * 60) * 1e6, 0) as int),
    dateadd(minute, cast(floor((-@age) / 60) as int), @now));
declare @next bigint;
declare @in_progress bigint;
select top (1) @next = last_offset + 1
from tq_events__s1__ranges with (index (tq_events__s1__last), readcommittedlock)
order by id desc;
select @in_progress = count_big(*)
from tq_events__s1__ranges
where lease_until is not null;
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, consumer, popped_at, finished_at)
select @next, @start - 1, @start - @next, 0, @consumer, @begun, @now
where @next < @start and @in_progress = 0;
select @in_progress as in_progress;

-- range_peek_in_progress
-- The first :n messages of the log with an id above :after that ranges in progress hold.
-- Indexes: tq_events__s1__lease, the primary keys.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @n bigint = :n;
declare @after bigint = :after;
select top (@n)
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, finished_at, errors
from (
    select
        id, payload, headers, 'in_progress' as state, 1 as attempts, 0 as priority,
        convert(nvarchar(510), group_key) as group_key, cast(null as nvarchar(510)) as dedup_key, producer, consumer,
        pushed_at, cast(null as datetime2(6)) as due_at, popped_at as first_popped_at, popped_at, lease_until,
        cast(null as datetime2(6)) as finished_at, cast(null as nvarchar(max)) as errors
    from (
        select
            held.id as range_id, held.first_offset, held.last_offset, held.messages, held.consumer, held.popped_at,
            held.lease_until, held.finished_at, held.left_ids, held.apart_ids, (
                case
                    when left_ids is not null then (select count(*) from openjson(left_ids))
                    when finished_at is not null then messages
                    else 0
                end - (select count(*) from openjson(apart_ids))
            ) as finished,
            run.first_id + iif(run.first_offset < held.first_offset, held.first_offset - run.first_offset, 0) as low,
            iif(
                run.first_offset + run.last_id - run.first_id > held.last_offset,
                run.first_id + held.last_offset - run.first_offset, run.last_id
            ) as high
        from tq_events__s1__ranges as held
        inner join tq_events__runs as run on run.first_offset <= held.last_offset
            and run.first_offset >= coalesce(
                (select max(before.first_offset) from tq_events__runs as before where before.first_offset <= held.first_offset),
                0
            )
    ) as piece
    cross apply (
        select top (@n) log.id, log.pushed_at, log.producer, log.group_key, log.headers, log.payload
        from tq_events as log with (readpast, readcommittedlock)
        where log.id between piece.low and piece.high and log.id > @after
            and not exists (
                select 1 from openjson(piece.left_ids) with (id bigint '$') as gone where gone.id = log.id
            )
        order by log.id
    ) as log
    where piece.lease_until is not null
) as found
order by id;

-- range_peek_ready
-- The first :n messages of the log with an id above :after that no range has, from the position of the subscription on.
-- Of the intervals of ids only the first ones are read, which have so many messages.
-- Indexes: the primary keys, that of the runs by last_id.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @n bigint = :n;
declare @after bigint = :after;
declare @spans table (low bigint not null primary key, high bigint not null, sure bigint not null);
insert into @spans (low, high, sure)
select span.low, span.high, case when span.messages > 0 then span.high - span.low + 1 else 0 end
from (
    select iif(low > @after, low, @after + 1) as low, high, messages
    from (
        select low, high, high - low + 1 as messages
        from (
            select
                iif(run.first_offset < next.position, run.first_id + next.position - run.first_offset, run.first_id)
                    as low,
                run.last_id as high
            from (
                select iif(last.position > first.position, last.position, first.position) as position
                from (select max(last_offset + 1) as position from tq_events__s1__ranges where id = (select max(id) from tq_events__s1__ranges))
                    as last
                cross join (select min(first_offset) + 1 as position from tq_events__runs) as first
            ) as next
            inner join tq_events__runs as run on run.first_offset + run.last_id - run.first_id >= next.position
                and run.first_offset >= coalesce(
                    (select max(before.first_offset) from tq_events__runs as before where before.first_offset <= next.position),
                    0
                )
        ) as after_it
        union all
        select max(last_id) + 1, cast(9223372036854775807 as bigint), 0 from tq_events__runs
        union all
        select first_id, last_id, 0 from tq_events__holes
    ) as unclaimed
    where high > @after
) as span;
select top (@n)
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, finished_at, errors
from (
    select
        id, payload, headers, 'ready' as state, 0 as attempts, 0 as priority,
        convert(nvarchar(510), group_key) as group_key, cast(null as nvarchar(510)) as dedup_key, producer,
        cast(null as nvarchar(512)) as consumer, pushed_at, cast(null as datetime2(6)) as due_at,
        cast(null as datetime2(6)) as first_popped_at, cast(null as datetime2(6)) as popped_at,
        cast(null as datetime2(6)) as lease_until, cast(null as datetime2(6)) as finished_at,
        cast(null as nvarchar(max)) as errors
    from (
        select low, high, sum(sure) over (order by low rows unbounded preceding) - sure as so_far from @spans
    ) as span
    cross apply (
        select top (@n) id, pushed_at, producer, group_key, headers, payload
        from tq_events with (readpast, readcommittedlock)
        where id between span.low and span.high
        order by id
    ) as log
    where span.so_far < @n
) as found
order by id;

-- range_position
-- The offset at which the next claim of a subscription begins; and of the last range or seek, its
-- number and its consumer, null of a seek.
-- Index: tq_events__s1__last. Locks: none that lasts.
select top (1) last_offset + 1 as position, id, consumer
from tq_events__s1__ranges with (index (tq_events__s1__last), readcommittedlock)
order by id desc;

-- range_pump
-- Move the next :n messages of the log to the queue of an ordered subscription, and the position past them. Returns
-- their ids. In one transaction with range_lock: one session moves messages at a time.
-- A message without a group, which an older log may have, is in the group without a name.
-- Indexes: tq_events__s1__last, the primary keys. Locks: the new rows; READPAST as in range_claim. A crash leaves all or
-- nothing.
declare @n bigint = :n;
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
declare @begins bigint;
declare @ends bigint;
declare @dropped bigint;
declare @moved table (id bigint not null primary key, first_offset bigint not null);
select top (1) @begins = last_offset + 1
from tq_events__s1__ranges with (index (tq_events__s1__last), readcommittedlock)
order by id desc;
select @dropped = min(first_offset), @begins = iif(@begins > min(first_offset), @begins, min(first_offset) + 1)
from tq_events__runs with (readcommittedlock);
select top (1) @ends = first_offset + last_id - first_id
from tq_events__runs with (readpast, readcommittedlock)
order by first_offset desc;
if @ends > @begins + @n - 1
    set @ends = @begins + @n - 1;
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
select @begins, @ends, 0, 0, @now, @now
where @begins <= @ends;
insert into @moved (id, first_offset)
select message.id, run.first_offset
from tq_events__runs as run with (forceseek, readcommittedlock)
inner join tq_events as message with (forceseek, readcommittedlock)
    on message.id between iif(run.first_offset < @begins, run.first_id + @begins - run.first_offset, run.first_id)
        and iif(run.first_offset + run.last_id - run.first_id > @ends, run.first_id + @ends - run.first_offset, run.last_id)
where run.first_offset > @dropped
    and run.first_offset <= @ends
    and run.first_offset >= (
        select max(before.first_offset) from tq_events__runs as before with (readcommittedlock)
        where before.first_offset <= @begins
    );
delete from message
from tq_events__s1_history as message with (rowlock, forceseek)
where message.id in (select moved.id from @moved as moved);
insert into tq_events__s1 (id, state, pushed_at, group_key, producer, headers, payload)
output inserted.id
select
    moved.id, 'ready', message.pushed_at, coalesce(message.group_key, 0x), message.producer, message.headers,
    message.payload
from @moved as moved
inner join tq_events as message with (forceseek, readcommittedlock) on message.id = moved.id
where not exists (select 1 from tq_events__s1 as there where there.id = moved.id)
order by moved.first_offset, moved.id;

-- range_purge
-- Delete the ranges that have no message any more at or after the offset :start, but for the last one, after which the
-- next claim begins. 1,000 a statement, each for itself: a crash leaves the others for the next call.
-- Indexes: tq_events__s1__last, the primary key. Locks: the rows; locked rows are skipped.
declare @start bigint = :start;
declare @last bigint;
declare @deleted bigint = 1000;
select top (1) @last = id
from tq_events__s1__ranges with (index (tq_events__s1__last), readcommittedlock)
order by id desc;
while @deleted = 1000
begin
    delete top (1000) from tq_events__s1__ranges with (rowlock, readpast, readcommittedlock)
    where id < @last and last_offset < @start and lease_until is null;
    set @deleted = rowcount_big();
end;

-- range_remaining
-- How many ranges and detached messages a seek to :start has left where none may be: others have
-- locked them, or they are in progress.
-- Indexes: tq_events__s1__lease, the primary keys, that of the runs by last_id; all detached messages are read.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
declare @start bigint = :start;
select
    (select count_big(*) from tq_events__s1__ranges where lease_until is not null and last_offset >= @start)
    + (
        select count_big(*)
        from tq_events__s1 as message
        where message.first_popped_at is null or exists (
            select 1
            from (select top (1) first_offset, first_id from tq_events__runs where last_id >= message.id order by last_id) as run
            where run.first_id <= message.id and run.first_offset + message.id - run.first_id >= @start
                and run.first_offset > (select min(every.first_offset) from tq_events__runs as every)
        )
    ) as remaining;

-- range_seek
-- Let the next claim begin at :start.
-- The row has no messages. Index: none. Locks: the new row; range_wait comes before it.
declare @start bigint = :start;
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
insert into tq_events__s1__ranges (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (@start, @start - 1, 0, 0, @now, @now);

-- range_stats
-- The messages of a subscription that are in the log alone: not claimed yet, in progress, and finished;
-- and the age of the first one not claimed. What the last 100,000 ranges finished is counted. If there are more
-- ranges, it is an estimate: as many messages as there are offsets from the first range on.
-- Indexes: tq_events__s1__last, tq_events__s1__lease, the primary keys.
-- Locks: none under READ_COMMITTED_SNAPSHOT, but for the two READCOMMITTEDLOCK that wait for a claim. Without that
-- option it waits for transactions that finish messages. READPAST passes over messages in flight.
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
declare @next bigint;
declare @end bigint;
declare @last bigint;
declare @first bigint;
select top (1) @next = last_offset + 1
from tq_events__s1__ranges with (index (tq_events__s1__last), readcommittedlock)
order by id desc;
select @next = iif(@next > min(first_offset), @next, min(first_offset) + 1)
from tq_events__runs with (readcommittedlock);
select top (1) @end = first_offset + last_id - first_id + 1
from tq_events__runs with (readpast, readcommittedlock)
order by first_offset desc;
select top (1) @last = last_id
from tq_events__runs with (readpast, readcommittedlock)
order by last_id desc;
select top (1) @first = first_offset
from tq_events__s1__ranges
order by id;
select
    case when @end > @next then @end - @next else 0 end
        + (select count_big(*) from tq_events with (readpast, readcommittedlock) where id > @last) as ready,
    (
        select coalesce(sum(cast(held.messages - gone.number as bigint)), 0)
        from tq_events__s1__ranges as held
        cross apply (select count(*) as number from openjson(held.left_ids)) as gone
        where held.lease_until is not null
    ) as in_progress,
    (
        select case
            when count(*) < 100000 then coalesce(sum(claimed.finished), 0)
            when sum(claimed.finished) > max(claimed.last_offset) - @first + 1 then sum(claimed.finished)
            else max(claimed.last_offset) - @first + 1
        end
        from (
            select top (100000) last_offset, cast((
                case
                    when left_ids is not null then (select count(*) from openjson(left_ids))
                    when finished_at is not null then messages
                    else 0
                end - (select count(*) from openjson(apart_ids))
            ) as bigint) as finished
            from tq_events__s1__ranges
            where messages > 0
            order by id desc
        ) as claimed
    ) as finished,
    (
        select datediff_big(microsecond, message.pushed_at, @now) / 1e6
        from tq_events as message with (readpast, readcommittedlock)
        where message.id = coalesce(
            (
                select top (1) run.first_id + @next - run.first_offset
                from tq_events__runs as run
                where run.first_offset <= @next and @next < @end
                order by run.first_offset desc
            ),
            (select min(id) from tq_events with (readpast, readcommittedlock) where id > @last)
        )
    ) as oldest_age;

-- range_stats_finished
-- Of the last :n messages that the last :n ranges finished less than :age seconds ago, the last
-- one first: producer, consumer, seconds of wait and of run, attempts, and how many seconds ago each was finished.
-- Messages that left a range have the time of the last ones that did.
-- Indexes: the primary keys.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @n bigint = :n;
declare @age float = cast(:age as float);
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
declare @since datetime2(6) = dateadd(microsecond, cast(round(((-@age) - floor((-@age) / 60) * 60) * 1e6, 0) as int),
    dateadd(minute, cast(floor((-@age) / 60) as int), @now));
declare @spans table (
    range_id bigint not null,
    low bigint not null,
    high bigint not null,
    consumer nvarchar(512) null,
    popped_at datetime2(6) not null,
    finished_at datetime2(6) not null,
    left_ids varchar(max) null,
    apart_ids varchar(max) null,
    sure bigint not null,
    primary key (range_id, low)
);
insert into @spans (range_id, low, high, consumer, popped_at, finished_at, left_ids, apart_ids, sure)
select
    range_id, low, high, consumer, popped_at, finished_at, left_ids, apart_ids,
    iif(high - low + 1 > messages - finished, high - low + 1 - (messages - finished), 0)
from (
    select
        held.id as range_id, held.first_offset, held.last_offset, held.messages, held.consumer, held.popped_at,
        held.lease_until, held.finished_at, held.left_ids, held.apart_ids, (
            case
                when left_ids is not null then (select count(*) from openjson(left_ids))
                when finished_at is not null then messages
                else 0
            end - (select count(*) from openjson(apart_ids))
        ) as finished,
        run.first_id + iif(run.first_offset < held.first_offset, held.first_offset - run.first_offset, 0) as low,
        iif(
            run.first_offset + run.last_id - run.first_id > held.last_offset,
            run.first_id + held.last_offset - run.first_offset, run.last_id
        ) as high
    from tq_events__s1__ranges as held
    inner join tq_events__runs as run on run.first_offset <= held.last_offset
        and run.first_offset >= coalesce(
            (select max(before.first_offset) from tq_events__runs as before where before.first_offset <= held.first_offset),
            0
        )
) as piece
where finished > 0 and finished_at > @since and finished_at <= @now
    and range_id >= (
        select min(claimed.id) from (select top (@n) id from tq_events__s1__ranges order by id desc) as claimed
    );
select top (@n)
    producer,
    consumer,
    datediff_big(microsecond, pushed_at, popped_at) / 1e6 as wait,
    datediff_big(microsecond, popped_at, finished_at) / 1e6 as run,
    1 as attempts,
    datediff_big(microsecond, finished_at, @now) / 1e6 as ago
from (
    select log.producer, log.pushed_at, span.consumer, span.popped_at, span.finished_at
    from (
        select
            low, high, consumer, popped_at, finished_at, left_ids, apart_ids,
            sum(sure) over (order by finished_at desc, range_id, low rows unbounded preceding) - sure as so_far
        from @spans
    ) as span
    cross apply (
        select top (@n) log.producer, log.pushed_at
        from tq_events as log with (readpast, readcommittedlock)
        where log.id between span.low and span.high
            and (span.left_ids is null or log.id in (select id from openjson(span.left_ids) with (id bigint '$')))
            and not exists (
                select 1 from openjson(span.apart_ids) with (id bigint '$') as one where one.id = log.id
            )
    ) as log
    where span.so_far < @n
) as finished
order by finished_at desc;

-- range_until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is expected. For waiting consumers.
-- Indexes: those of the states, tq_events__s1__last, tq_events__s1__lease, the primary keys; one entry of each, and one for each
-- hole.
-- Locks: none that lasts. READPAST passes over messages in flight, and over what others are finishing.
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
select
    case
        when paused.until is not null then datediff_big(microsecond, @now, paused.until) / 1e6
        when exists (select 1 from tq_events__s1 with (readpast, readcommittedlock) where state = 'ready')
            or exists (
                select 1 from tq_events with (readpast, readcommittedlock)
                where id > (select max(last_id) from tq_events__runs with (readpast, readcommittedlock))
            )
            or (
                select top (1) first_offset + last_id - first_id
                from tq_events__runs with (readpast, readcommittedlock)
                order by first_offset desc
            ) > (
                select top (1) last_offset
                from tq_events__s1__ranges with (index (tq_events__s1__last), readcommittedlock)
                order by id desc
            )
            or exists (
                select 1
                from tq_events__holes as hole with (readpast, readcommittedlock)
                inner join tq_events as message with (forceseek, readpast, readcommittedlock)
                    on message.id between hole.first_id and hole.last_id
            ) then 0e0
        else datediff_big(microsecond, @now, (
            select min(coming.at)
            from (
                select min(due_at) as at from tq_events__s1 with (readpast, readcommittedlock) where state = 'scheduled'
                union all
                select min(lease_until) as at
                from tq_events__s1 with (readpast, readcommittedlock)
                where state = 'in_progress'
                union all
                select min(lease_until) as at from tq_events__s1__ranges with (readpast, readcommittedlock)
                where lease_until is not null
            ) as coming
        )) / 1e6
    end as seconds,
    iif(paused.until is null, 0, 1) as paused
from (select max(until) as until from tq__paused where name = 'tq_events__s1' and until > @now) as paused;

-- range_wait
-- Wait for the lock of a subscription's claims, and keep it until the transaction ends.
-- Index: none. Locks: an application lock, no rows.
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue claim ', object_id(N'tq_events__s1__ranges'));
exec @granted = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction';
if @granted < 0
    throw 51000, N'tablequeue: other consumers are claiming from this subscription', 1;

-- sequence
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
exec tq_events__sequence 1;
if @@trancount = 0
    and exists (select 1 from tq_events__holes with (readpast, readcommittedlock) where seen_at < @seen_before)
begin
    set lock_timeout 0;
    begin try
        select top (1) @one = id from tq_events with (tablock, holdlock);
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
    from tq_events__holes as hole with (rowlock, readpast, readcommittedlock)
    where hole.seen_at < @seen_before
        and not exists (
            select 1 from tq_events as message with (forceseek, readcommittedlock)
            where message.id between hole.first_id and hole.last_id
        );

-- sequence_lock
-- Wait until no other session sequences the topic, and keep others from it until the transaction ends.
-- Index: none. Locks: an application lock, no rows.
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue sequence ', object_id(N'tq_events'));
exec @granted = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction';
if @granted < 0
    throw 51000, N'tablequeue: other sessions are sequencing this topic', 1;

-- topic_bounds
-- The first offset of the log, and the one after the last.
-- Index: the primary key of the runs. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for a
-- session that sequences.
select
    (select min(first_offset) + 1 from tq_events__runs) as first,
    (select top (1) first_offset + last_id - first_id + 1 from tq_events__runs order by first_offset desc) as after_last;

-- topic_push
-- Push one message to the log.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
declare @payload nvarchar(max) = cast(:payload as nvarchar(max));
declare @headers nvarchar(max) = cast(:headers as nvarchar(max));
declare @producer nvarchar(512) = cast(:producer as nvarchar(512));
declare @group varbinary(1020) = convert(varbinary(1020), cast(:group as nvarchar(510)));
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
insert into tq_events (payload, headers, producer, group_key, pushed_at)
output inserted.id
values (@payload, @headers, @producer, @group, @now);

-- topic_push_each
-- Push a batch of messages, each with a group and headers of its own, in the order of the JSON array :rows; as
-- topic_push_many.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
declare @rows nvarchar(max) = cast(:rows as nvarchar(max));
declare @producer nvarchar(512) = cast(:producer as nvarchar(512));
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
insert into tq_events (payload, headers, producer, group_key, pushed_at)
output inserted.id
select given.payload, given.headers, @producer, convert(varbinary(1020), given.group_key), @now
from openjson(@rows) as entry
cross apply openjson(entry.value) with (
    payload nvarchar(max) '$.payload',
    headers nvarchar(max) '$.headers',
    group_key nvarchar(510) '$.group'
) as given
order by cast(entry.[key] as int);

-- topic_push_many
-- Push a batch of messages, in the order of the JSON array :payloads: all of them, or none. The ids rise in that order,
-- and OUTPUT returns them in any order; see push_many.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
declare @payloads nvarchar(max) = cast(:payloads as nvarchar(max));
declare @headers nvarchar(max) = cast(:headers as nvarchar(max));
declare @producer nvarchar(512) = cast(:producer as nvarchar(512));
declare @group varbinary(1020) = convert(varbinary(1020), cast(:group as nvarchar(510)));
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
insert into tq_events (payload, headers, producer, group_key, pushed_at)
output inserted.id
select batch.value, @headers, @producer, @group, @now
from openjson(@payloads) as batch
order by cast(batch.[key] as int);

-- topic_pushed_at
-- When the message was pushed that has the highest id up to the offset :start. These times never go back, so that one
-- can search by them, though a message that was committed late comes after younger ones.
-- Indexes: the primary keys. Locks: as topic_bounds.
declare @start bigint = :start;
select message.pushed_at
from (
    select
        max(iif(last_id < first_id + @start - first_offset, last_id, first_id + @start - first_offset)) as id
    from tq_events__runs
    where first_offset <= @start
) as run
inner join tq_events as message on message.id = run.id;

-- topic_rows
-- The messages at the offsets from :start on and before :end, in their order.
-- Indexes: the primary keys. Locks: none that lasts; it waits for none, as they are committed.
declare @begins bigint = :start;
declare @ends bigint = :end;
declare @pieces table (first_offset bigint not null primary key, low bigint not null, high bigint not null);
set @ends = @ends - 1;
insert into @pieces (first_offset, low, high)
select
    iif(run.first_offset < @begins, @begins, run.first_offset),
    iif(run.first_offset < @begins, run.first_id + @begins - run.first_offset, run.first_id),
    iif(run.first_offset + run.last_id - run.first_id > @ends, run.first_id + @ends - run.first_offset, run.last_id)
from tq_events__runs as run with (forceseek, readcommittedlock)
where run.first_offset <= @ends
    and run.first_offset >= (
        select coalesce(max(before.first_offset), 0) from tq_events__runs as before with (readcommittedlock)
        where before.first_offset <= @begins
    );
select
    piece.first_offset + message.id - piece.low as message_offset, message.id, message.payload, message.headers,
    convert(nvarchar(510), message.group_key) as group_key, message.producer, message.pushed_at
from @pieces as piece
inner join tq_events as message with (forceseek, readcommittedlock) on message.id between piece.low and piece.high
order by piece.first_offset, message.id;

-- topic_size
-- What the log has: the number of its messages, the bytes as the database knows them, and the seconds since the first
-- message was pushed. Messages in holes are not counted.
-- Indexes: the primary keys, that of the runs by last_id. Locks: as range_stats.
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
declare @last bigint;
select top (1) @last = last_id
from tq_events__runs with (readpast, readcommittedlock)
order by last_id desc;
select
    (select max(first_offset + last_id - first_id) - min(first_offset) from tq_events__runs)
        + (select count_big(*) from tq_events with (readpast, readcommittedlock) where id > @last) as messages,
    (
        select cast(coalesce(sum(used_page_count), 0) * 8192 as bigint)
        from sys.dm_db_partition_stats
        where object_id = object_id(N'tq_events')
    ) as bytes,
    (
        select top (1) datediff_big(microsecond, message.pushed_at, @now) / 1e6
        from tq_events as message with (readpast, readcommittedlock)
        order by message.id
    ) as oldest_age;

-- topic_stats_pushed
-- Count the messages pushed less than :age seconds ago by moment, among the :n highest ids of the
-- log. Returns the producer, how many seconds ago, and the number of messages.
-- Index: the primary key, backwards, for :n rows: no index has the time of a push, but ids rise with it.
-- Locks: none that lasts. READPAST passes over messages in flight.
declare @n bigint = :n;
declare @age float = cast(:age as float);
declare @now datetime2(6) = coalesce(cast(:now as datetime2(6)), sysutcdatetime());
declare @since datetime2(6) = dateadd(microsecond, cast(round(((-@age) - floor((-@age) / 60) * 60) * 1e6, 0) as int),
    dateadd(minute, cast(floor((-@age) / 60) as int), @now));
select producer, datediff_big(microsecond, pushed_at, @now) / 1e6 as ago, count_big(*) as pushed
from (
    select top (@n) producer, pushed_at
    from tq_events with (readpast, readcommittedlock)
    order by id desc
) as newest
where pushed_at > @since and pushed_at <= @now
group by producer, pushed_at;

-- topic_trim
-- Delete messages that come before the offset :start: up to 1,000 of them, from the beginning of the log. Returns their
-- number. Nothing is deleted if another session sequences just now.
-- Rejected: partitions that are truncated. Their functions belong to the database, not to a schema. A truncation waits
-- for all that read the log, and others wait behind it. It was not tried on a server.
-- Indexes: the primary keys. Locks: that of sequencing, then the messages and two runs.
-- In one transaction: a crash leaves all or nothing.
declare @start bigint = :start;
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue sequence ', object_id(N'tq_events'));
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
    from tq_events__runs with (readcommittedlock)
    order by first_offset;
    select top (1) @offset = first_offset, @low = first_id, @end = last_id
    from tq_events__runs with (readcommittedlock)
    where first_offset > @gone
    order by first_offset;
    select @high = min(bound.id)
    from (values (@end), (@low + 999), (@low + @start - 1 - @offset)) as bound (id);
    set @deleted = iif(@high >= @low, @high - @low + 1, 0);
end;
if @deleted > 0
begin
    delete from message
    from tq_events as message with (rowlock, forceseek)
    where message.id between @low and @high;
    delete from tq_events__runs
    where first_offset in (@gone, @offset);
    insert into tq_events__runs (first_offset, first_id, last_id)
    values (@offset + @deleted - 1, iif(@gone_id > @high, @gone_id, @high), iif(@gone_id > @high, @gone_id, @high));
    insert into tq_events__runs (first_offset, first_id, last_id)
    select @offset + @deleted, @high + 1, @end
    where @high < @end;
end;
commit transaction;
select @deleted as deleted;

