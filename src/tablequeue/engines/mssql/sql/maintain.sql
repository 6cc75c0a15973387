-- Maintenance of a queue: sweep, expire, redrive, purge, and moves of dead letters.

-- name: put_back
-- Put back, as a dead letter, a message that was taken in this transaction and whose payload cannot be read.
-- Index: the primary key. Locks: the row. A crash before the commit leaves it where it was before it was taken.
declare @attempts int = :attempts;
set identity_insert {queue} on;
insert into {queue} (
    {queue_row without token lease_until producer}
)
values (
    @id, 'dead', @attempts, @priority, @pushed_at, @due, @popped_at, @popped_at, @group, @key,
    cast(:consumer as nvarchar(512)), cast(:headers as nvarchar(max)), cast(:errors as nvarchar(max)),
    cast(:payload as {payload_type})
);
set identity_insert {queue} off;

-- name: forget
-- Index: the primary key. Locks: the row. A crash before the commit leaves it where it was before it was taken.
delete from {history} with (rowlock) where id = cast(:id as bigint);

-- name: sweep
-- Up to :n messages that are due become ready; then as many whose lease has expired, or dead letters if their last
-- attempt is spent. A lost lease is an error of the attempt. One that was told to stop stays as it is, in progress:
-- cancel_held ends it.
-- Indexes: {table}__scheduled, {table}__in_progress, forced as in claim. Locks: the rows; locked rows are skipped. Each
-- of the two leaves all or nothing in a crash.
-- name: sweep.due
with due as (
    select top (@n) id, state
    from {queue} with (index ({table}__scheduled), rowlock, readpast, updlock, readcommittedlock)
    where state = 'scheduled' and due_at <= @now
    order by due_at
)
update due
set state = 'ready'
output inserted.id, inserted.state;
go
-- name: sweep.expired
declare @error nvarchar(max) = N'lease expired';
with expired as (
    select top (@n)
        id, state, attempts, cancelled_at, token, lease_until, group_key, consumer, errors{expires_at}{and_in_run}
    from {queue} with (index ({table}__in_progress), rowlock, readpast, updlock, readcommittedlock)
    where state = 'in_progress' and lease_until <= @now
    order by lease_until
)
update expired
set state = case
        when cancelled_at is not null then state
        when attempts >= @max_attempts{in_time} then 'dead'{or_blocked}
        else 'ready'
    end,
    errors = case when cancelled_at is not null then errors else {errors_and} end,
    token = case when cancelled_at is not null then token end,
    lease_until = case when cancelled_at is not null then lease_until end{out_of_run_if_swept}
{note_inserted}output inserted.id, inserted.state;

-- name: move_dead
-- If {target} is grouped, they are blocked there, with a note for its promote.
-- Index: the primary key, sought as in complete. Locks: the rows, of at most 1,000 messages. In one transaction with
-- the failure: a crash leaves the message in progress.
insert into {target} (
    {queue_row without id token lease_until dedup_key}
)
{note_in_target}select
    {queue_row without id token lease_until dedup_key with
        state = '{moved_dead}'
        attempts = 0
        due_at = @now
        headers = {origin_header}}
from {queue} as message with (rowlock, updlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state = 'dead'
order by id;
delete from message
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state = 'dead';

-- name: expire
-- Index: {table}__expires. Locks: the rows; locked rows are skipped. A crash leaves all or nothing.
-- [none]
declare @error nvarchar(max) = N'expired';
-- [keep batches]
-- Where there are batches, a trigger refuses an OUTPUT without INTO. So what is deleted next is noted here first, in
-- one transaction with that.
declare @expired table (id bigint not null primary key, group_key varbinary(1020) null);
insert into @expired (id, group_key)
select top (@n) id, group_key
from {queue} with (index ({table}__expires), rowlock, readpast, updlock, readcommittedlock)
where {waiting} and expires_at <= @now
order by expires_at;
delete from message
output
    {history_row of deleted without token with
        finished_at = @now
        group_key = convert(nvarchar(510), deleted.group_key)
        dedup_key = convert(nvarchar(510), deleted.dedup_key)}, 'expired'
into {history} (
    {history_row without token}, outcome
)
from {queue} as message with (rowlock, forceseek)
where message.id in (select expired.id from @expired as expired);
select expired.id, convert(nvarchar(510), expired.group_key) as group_key from @expired as expired;
-- [none or not batches]
with expired as (
    -- [keep not batches]
    select top (@n)
        {history_row without token finished_at}, expires_at
    -- [none]
    select top (@n) id, state, attempts, group_key, consumer, errors, expires_at
    -- [none or not batches]
    from {queue} with (index ({table}__expires), rowlock, readpast, updlock, readcommittedlock)
    where {waiting} and expires_at <= @now
    order by expires_at
)
-- [keep not batches]
delete from expired
output
    {history_row of deleted without token with
        finished_at = @now
        group_key = convert(nvarchar(510), deleted.group_key)
        dedup_key = convert(nvarchar(510), deleted.dedup_key)}, 'expired'
into {history} (
    {history_row without token}, outcome
)
output deleted.id, convert(nvarchar(510), deleted.group_key) as group_key;
-- [none]
update expired
set state = 'dead',
    errors = {errors_and}
{note_inserted}output inserted.id;
-- [end]

-- name: redrive
-- Index: {table}__dead. Locks: the rows. A crash leaves all of a batch done, or nothing.
with letters as (
    select top (@n) id, state, attempts, due_at, group_key{expires_at}
    from {queue} with (index ({table}__dead), rowlock, readpast, updlock, readcommittedlock)
    where state = 'dead' and id > @after
    order by id
)
update letters
-- [dependencies]
set state = case when {still_waits of=letters} then '{pushed_scheduled}' else '{pushed_ready}' end, attempts = 0,
    due_at = case when {still_waits of=letters} then cast(:due as datetime2(6)) else {redriven_due} end{no_expiry}
-- [else]
set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry}
-- [end]
{note_inserted}output inserted.id;

-- name: redrive_ids
-- Index: the primary key, sought as in complete. Locks: the rows. A crash leaves all or nothing.
update message
-- [dependencies]
set state = case when {still_waits of=message} then '{pushed_scheduled}' else '{pushed_ready}' end, attempts = 0,
    due_at = case when {still_waits of=message} then cast(:due as datetime2(6)) else {redriven_due} end{no_expiry}
-- [else]
set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry}
-- [end]
{note_inserted}output inserted.id
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state = 'dead';

-- name: move_back
-- The first batch finds and locks them, as move does, and the others move them. One of them may be the head of its
-- group in {target}: then the group needs another one, so it is noted.
-- Index: the primary key, sought as in complete. Locks: the rows, of at most 1,000 messages; locked rows are skipped.
-- A crash leaves all moved, or none.
-- name: move_back.find
declare @free table (id bigint not null primary key);
insert into @free (id)
select message.id
from {target} as message with (rowlock, readpast, readcommittedlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state in ('ready', 'scheduled', 'blocked', 'dead');
select message.id
from {target} as message with (rowlock, readpast, updlock, readcommittedlock, forceseek)
where message.id in (select free.id from @free as free)
    and message.state in ('ready', 'scheduled', 'blocked', 'dead');
go
-- name: move_back.insert
insert into {queue} (
    {queue_row without id token lease_until}
)
{note_inserted}select
    {queue_row without id token lease_until with
        state = '{pushed_ready}'
        attempts = 0
        due_at = {redriven_due}
        dedup_key = {origin_key}}
from {target} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
order by id;
go
-- name: move_back.delete
delete from message
{note_from_target}from {target} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);

-- name: purge
-- Delete up to :n messages that are {state}.
-- Index: {table}__{state}, in its own order: all of them go in the end. Bounded, and locked rows are skipped, so that
-- no consumer waits. What was deleted before a crash stays deleted.
-- [batches]
-- Where there are batches, a trigger refuses an OUTPUT without INTO.
declare @gone table (id bigint not null primary key, group_key varbinary(1020) null);
-- [end]
with gone as (
    select top (@n) id, group_key
    from {queue} with (index ({table}__{state}), rowlock, readpast, updlock, readcommittedlock)
    where {in_state}
)
delete from gone
-- [not batches]
{note_deleted}output deleted.id;
-- [batches]
output deleted.id, deleted.group_key into @gone (id, group_key);
-- [batches grouped]
insert into {turns} (group_key)
select group_key from @gone group by group_key order by min(id);
-- [batches]
select id from @gone;
-- [end]

-- name: purge_ids
-- Index: the primary key, sought as in complete.
-- [batches]
-- Where there are batches, a trigger refuses an OUTPUT without INTO.
declare @gone table (id bigint not null primary key, group_key varbinary(1020) null);
-- [end]
delete from message
-- [not batches]
{note_deleted}output deleted.id
-- [batches]
output deleted.id, deleted.group_key into @gone (id, group_key)
-- [end]
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state = '{state}';
-- [batches grouped]
insert into {turns} (group_key)
select group_key from @gone group by group_key order by min(id);
-- [batches]
select id from @gone;
-- [end]

-- name: purge_history
-- Delete up to :n messages from the history that were finished, or lost, :age seconds ago or longer.
-- Index: {table}__finished. Locks: the rows of one bounded batch; locked rows are skipped.
declare @before datetime2(6) = {now_less_age};
-- [results]
declare @gone table (id bigint not null primary key);
-- [end]
with gone as (
    select top (@n) id
    from {history} with (index ({table}__finished), rowlock, readpast, updlock, readcommittedlock)
    where finished_at <= @before or (finished_at is null and popped_at <= @before)
)
delete from gone
-- [not results]
output deleted.id;
-- [results]
output deleted.id into @gone (id);
delete from {results} where id in (select id from @gone);
select id from @gone;
-- [end]

-- name: purge_history_ids
-- Index: the primary key, sought as in complete. Locks: the rows of one bounded batch.
-- [results]
declare @gone table (id bigint not null primary key);
-- [end]
delete from message
-- [not results]
output deleted.id
-- [results]
output deleted.id into @gone (id)
-- [end]
from {history} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);
-- [results]
delete from {results} where id in (select id from @gone);
select id from @gone;
-- [end]
