-- The tables and functions of a topic.

-- name: create_topic
-- Identities are given before commits. So the offset of a message, which says when it became visible, is in the runs:
-- a run is ids without a gap that were all committed when a session looked, and an offset is first_offset + id -
-- first_id. The run with the lowest offset is the last message that was dropped; at first 0, which never was. The holes
-- are the ids between runs: of transactions in flight, or rolled back.
-- No page locks, no lock escalation: a reader skips the rows of transactions in flight, and never waits for one that
-- has a page with other rows locked. The price: the index can be rebuilt, and not reorganized.
-- Runs in one transaction: a crash leaves nothing.
create table {log} (
    id bigint identity (1, 1) not null constraint pk_{table} primary key clustered with (allow_page_locks = off),
    pushed_at datetime2(6) not null,
    producer nvarchar(512) null,
    group_key varbinary(1020) null,
    headers nvarchar(max) null,
    payload {payload_type} not null
);
alter table {log} set (lock_escalation = disable);
create table {runs} (
    first_offset bigint not null constraint pk_{table}__runs primary key clustered with (allow_page_locks = off),
    first_id bigint not null,
    last_id bigint not null
);
alter table {runs} set (lock_escalation = disable);
create index {table}__last_id on {runs} (last_id) include (first_offset, first_id) with (allow_page_locks = off);
insert into {runs} (first_offset, first_id, last_id)
values (0, 0, 0);
create table {holes} (
    first_id bigint not null constraint pk_{table}__holes primary key clustered,
    last_id bigint not null,
    seen_at datetime2(6) not null
);
alter table {holes} set (lock_escalation = disable);
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
create procedure {log}__sequence @all_holes bit as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @granted int;
    declare @resource nvarchar(255) = concat(N'tablequeue sequence ', object_id(N'{log}'));
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
    from {runs} with (readcommittedlock)
    order by first_offset desc;
    select top (1) @last = last_id
    from {runs} with (readcommittedlock)
    order by last_id desc;
    select top (1) @upto = id
    from {log} with (readpast, readcommittedlock)
    where id > @last
    order by id desc;
    insert into @islands (low, high, first_id, last_id, seen_at)
    select min(numbered.id), max(numbered.id), @last + 1, 0, @now
    from (
        select fresh.id, fresh.id - row_number() over (order by fresh.id) as island
        from (
            select top (100000) id
            from {log} with (readpast, readcommittedlock)
            where id > @last and id <= @upto
            order by id
        ) as fresh
    ) as numbered
    group by numbered.island;
    if @all_holes = 0
        select @recent = coalesce(min(recent.first_id), 0)
        from (select top (100) first_id from {holes} with (readcommittedlock) order by first_id desc) as recent;
    insert into @islands (low, high, first_id, last_id, seen_at)
    select min(numbered.id), max(numbered.id), numbered.first_id, numbered.last_id, numbered.seen_at
    from (
        select
            hole.first_id, hole.last_id, hole.seen_at, message.id,
            message.id - row_number() over (partition by hole.first_id order by message.id) as island
        from {holes} as hole with (readcommittedlock)
        inner join {log} as message with (forceseek, readpast, readcommittedlock)
            on message.id between hole.first_id and hole.last_id
        where hole.first_id >= @recent
    ) as numbered
    group by numbered.first_id, numbered.last_id, numbered.seen_at, numbered.island;
    insert into {runs} (first_offset, first_id, last_id)
    select @next + sum(high - low + 1) over (order by low rows unbounded preceding) - (high - low + 1), low, high
    from @islands;
    delete from {holes}
    where first_id in (select island.first_id from @islands as island);
    insert into {holes} (first_id, last_id, seen_at)
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

-- name: create_topic_groups
-- Locks: the log, for a moment. Runs in one transaction: a crash leaves nothing.
alter table {log} add constraint ck_{table}__grouped check (group_key is not null);

-- name: drop_topic
-- In one transaction: a crash leaves all or nothing.
drop procedure if exists {log}__sequence;
drop table if exists {holes};
drop table if exists {runs};
drop table if exists {log};
