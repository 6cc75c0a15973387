-- Results of tasks, and chords: tasks whose results together are given to another one.

-- name: create_task_results
-- No lock escalation: it would stop other tasks. Runs in one transaction: a crash leaves nothing.
if object_id(N'{task_results}', N'U') is null
begin
    create table {task_results} (
        id varchar(64) collate Latin1_General_100_BIN2 not null constraint pk_tq__task_results primary key clustered,
        body varbinary(max) not null,
        until datetime2(6) not null,
        final_until datetime2(6) null
    );
    alter table {task_results} set (lock_escalation = disable);
    create index tq__task_results_until on {task_results} (until);
end;
if object_id(N'{chords}', N'U') is null
begin
    create table {chords} (
        id varchar(64) collate Latin1_General_100_BIN2 not null constraint pk_tq__chords primary key clustered,
        body varbinary(max) null,
        size int null,
        added int not null constraint df_tq__chords_added default 0,
        ended bit not null constraint df_tq__chords_ended default 0,
        token uniqueidentifier null,
        lease_until datetime2(6) null,
        until datetime2(6) not null
    );
    alter table {chords} set (lock_escalation = disable);
    create index tq__chords_open on {chords} (ended, id);
    create index tq__chords_until on {chords} (until);
end;
if object_id(N'{chord_parts}', N'U') is null
begin
    create table {chord_parts} (
        chord varchar(64) collate Latin1_General_100_BIN2 not null,
        part varchar(64) collate Latin1_General_100_BIN2 not null,
        place int not null,
        body varbinary(max) not null,
        until datetime2(6) not null,
        constraint pk_tq__chord_parts primary key clustered (chord, part)
    );
    alter table {chord_parts} set (lock_escalation = disable);
    create index tq__chord_parts_until on {chord_parts} (until);
end;

-- name: store_result
-- Keep a result, unless a final one is there. If two sessions insert the same key at once, the primary key refuses the
-- second one (error 2627), which tries again.
-- Index: the primary key. Locks: the row. A crash leaves all or nothing.
declare @id varchar(64) = cast(:key as varchar(64));
declare @until datetime2(6) = {now_and_expires};
update {task_results} with (rowlock)
set body = @body, until = @until, final_until = case when @success = 1 then @until end
where id = @id and (final_until is null or final_until <= @now);
if @@rowcount = 0
    insert into {task_results} (id, body, until, final_until)
    select @id, @body, @until, case when @success = 1 then @until end
    where not exists (select 1 from {task_results} as there with (readcommittedlock) where there.id = @id);

-- name: store_part
-- Note that a part of a chord has returned, once, unless the chord has ended. If two sessions insert the same part at
-- once, the primary key refuses the second one (error 2627), which tries again.
-- Index: the primary keys. Locks: the row. A crash leaves all or nothing.
declare @part varchar(64) = cast(:member as varchar(64));
declare @body varbinary(max) = cast(:returned as varbinary(max));
declare @until datetime2(6) = {now_and_expires};
insert into {chord_parts} (chord, part, place, body, until)
select @chord, @part, @place, @body, @until
where not exists (select 1 from {chords} as chord where chord.id = @chord and chord.ended = 1)
    and not exists (
        select 1 from {chord_parts} as there with (readcommittedlock) where there.chord = @chord and there.part = @part
    );

-- name: read_results
-- Index: the primary key.
-- Locks: none under READ_COMMITTED_SNAPSHOT; else it waits for a session that stores one of them.
select result.id, result.body
from {task_results} as result with (forceseek)
where result.id in (select given.id from openjson(@keys) with (id varchar(64) '$') as given) and result.until > @now;

-- name: forget_result
-- Index: the primary key. Locks: the row. A crash leaves all or nothing.
declare @id varchar(64) = cast(:key as varchar(64));
delete from {task_results} with (rowlock) where id = @id;

-- name: open_chord
-- Index: the primary keys. Locks: the rows. In one transaction: a crash leaves all or nothing.
declare @until datetime2(6) = {now_and_expires};
delete from {chord_parts} with (rowlock) where chord = @chord;
update {chords} with (rowlock)
set body = @body, size = null, added = 0, ended = 0, token = null, lease_until = null, until = @until
where id = @chord;
if @@rowcount = 0
    insert into {chords} (id, body, until)
    values (@chord, @body, @until);

-- name: size_chord
-- If two sessions insert the same chord at once, the primary key refuses the second one (error 2627), which tries
-- again.
-- Index: the primary key. Locks: the row. A crash leaves all or nothing.
declare @size int = :number;
declare @until datetime2(6) = {now_and_expires};
update {chords} with (rowlock)
set size = @size, ended = 0, token = null, lease_until = null, until = @until
where id = @chord;
if @@rowcount = 0
    insert into {chords} (id, size, until)
    values (@chord, @size, @until);

-- name: add_to_chord
-- If two sessions insert the same chord at once, the primary key refuses the second one (error 2627), which tries
-- again.
-- Index: the primary key. Locks: the row. A crash leaves all or nothing.
declare @until datetime2(6) = {now_and_expires};
update {chords} with (rowlock) set added = added + 1 where id = @chord;
if @@rowcount = 0
    insert into {chords} (id, added, until)
    values (@chord, 1, @until);

-- name: claim_chord
-- Of two parts that return at the same time, the one that commits last sees both. Index: the primary keys.
-- Locks: the row, until the end of the statement. A crash leaves all or nothing.
declare @until datetime2(6) = {now_and_lease};
update chord
set token = @token, lease_until = @until
output inserted.id
from {chords} as chord with (rowlock, forceseek)
where chord.id = @chord and chord.ended = 0 and {has_all_parts}
    and (chord.token = @token or chord.lease_until is null or chord.lease_until <= @now);

-- name: chord_parts
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT; else it waits for a part that returns.
select body from {chord_parts} where chord = @chord order by place, part;

-- name: complete_chords
-- Index: tq__chords_open. Locks: shared ones while it reads; locked rows are passed over.
declare @after varchar(64) = cast(:after_chord as varchar(64));
select top (@n) chord.id, chord.body
from {chords} as chord with (index (tq__chords_open), rowlock, readpast, readcommittedlock)
where chord.ended = 0 and chord.id > @after and chord.body is not null and {has_all_parts}
    and (chord.lease_until is null or chord.lease_until <= @now)
order by chord.id;

-- name: end_chord
-- Index: the primary keys. Locks: the rows. One transaction with what is sent then: a crash leaves all or nothing.
update {chords} with (rowlock)
set ended = 1, body = null, token = null
output inserted.id
where id = @chord and token = @token;

-- name: forget_parts
-- A part that is not committed yet is passed over, and expires. Index: the primary key.
delete from {chord_parts} with (rowlock, readpast, readcommittedlock) where chord = @chord;

-- name: expire_results
-- Indexes: tq__task_results_until, tq__chords_until, tq__chord_parts_until. Locks: the rows, but no locked ones.
-- Each statement commits by itself.
with expired as (
    select top (@n) id
    from {task_results} with (index (tq__task_results_until), rowlock, readpast, updlock, readcommittedlock)
    where until <= @now
    order by until
)
delete from expired
output deleted.id;
go
with expired as (
    select top (@n) id
    from {chords} as chord with (index (tq__chords_until), rowlock, readpast, updlock, readcommittedlock)
    where chord.until <= @now and not exists (
        select 1 from {chord_parts} as part where part.chord = chord.id and part.until > @now
    )
    order by chord.until
)
delete from expired
output deleted.id;
go
with expired as (
    select top (@n) chord, part
    from {chord_parts} as old with (index (tq__chord_parts_until), rowlock, readpast, updlock, readcommittedlock)
    where old.until <= @now and not exists (
        select 1 from {chord_parts} as newer where newer.chord = old.chord and newer.until > @now
    )
    order by old.until
)
delete from expired
output deleted.part;
