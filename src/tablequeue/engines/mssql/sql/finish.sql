-- What ends an attempt or changes a message: complete, fail, release, extend, cancel, reschedule.

-- name: complete
-- Index: the primary key. FORCESEEK: OPENJSON is always taken for 50 rows, and on a short table the plan could be to
-- scan, and so to lock, all of it. Locks: the rows. A crash leaves all of them completed, or none.
-- [batches]
-- Where there are batches, a trigger refuses an OUTPUT without INTO. So what is deleted next is noted here first, in
-- one transaction with that. UPDLOCK may keep a lock of every row that it looks at, so what is held is found without
-- it: the message of a lease that was lost belongs to another consumer.
declare @held table (id bigint not null primary key);
insert into @held (id)
select message.id
from {queue} as message with (rowlock, readcommittedlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token;
declare @done table (id bigint not null primary key, batch_id bigint null, group_key varbinary(1020) null);
insert into @done (id, batch_id, group_key)
select message.id, message.batch_id, message.group_key
from {queue} as message with (rowlock, updlock, forceseek)
where message.id in (select held.id from @held as held) and message.token = @token;
-- [end]
delete from message
-- [keep]
output
    {history_row of deleted without token with
        finished_at = @now
        group_key = convert(nvarchar(510), deleted.group_key)
        dedup_key = convert(nvarchar(510), deleted.dedup_key)}
into {history} (
    {history_row without token}
)
-- [keep not batches]
output deleted.id, convert(nvarchar(510), deleted.group_key) as group_key
-- [none not batches]
{note_deleted}output deleted.id
-- [end]
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token;
-- [batches]
select
    done.id,
    {may_end},
    convert(nvarchar(510), done.group_key) as group_key
from @done as done;
-- [end]

-- name: complete_at_most_once
-- Index: the primary key of the history. FORCESEEK: OPENJSON is always taken for 50 rows, and on a short table the plan
-- could be to scan, and so to lock, all of it. Locks: the rows. A crash leaves all of them completed, or none.
update message
set finished_at = @now, token = null
output inserted.id
from {history} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token;

-- name: keep_results
-- Index: the primary key. Locks: the new row. A crash before the commit keeps nothing, and completes nothing.
-- [batches]
insert into {results} (id, batch_id, result) values (@id, @batch_id, @result);
-- [else]
insert into {results} (id, result) values (@id, @result);
-- [end]

-- name: result
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT; else shared ones.
select result from {results} where id = @id;

-- name: fail
-- Fail the attempts on the messages of :delays, a JSON array of pairs of an id and seconds, that are held under :token:
-- each is ready again after its delay, or a dead letter if this was its last attempt. The error is kept.
-- Index: the primary key, sought as in complete. Locks: the rows.
-- A crash leaves them in progress until their leases expire.
update message
set state = case
        when attempts >= @max_attempts{in_time} then 'dead'{or_blocked}
        when given.delay > 0 then 'scheduled'
        else 'ready'
    end,
    due_at = case when attempts >= @max_attempts{in_time} then due_at else {now_and_given_delay} end,
    errors = {errors_and},
    token = null,
    lease_until = null{out_of_run}
{note_inserted}output inserted.id, inserted.state
from openjson(@delays) with (id bigint '$[0]', delay float '$[1]') as given
inner join {queue} as message with (rowlock, forceseek) on message.id = given.id
where message.token = @token and message.cancelled_at is null;

-- name: fail_at_most_once
-- Index: the primary key of the history, sought as in complete. Locks: the rows. A crash leaves all of them
-- failed, or none.
update message
set errors = {errors_and},
    token = null
output inserted.id, 'lost' as state
from {history} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token;

-- name: release
-- Index: the primary key, sought as in complete. Locks: the rows.
-- A crash leaves them in progress until the lease expires.
declare @due datetime2(6) = {now_and_delay};
update message
set state = case{or_blocked} when @delay > 0 then 'scheduled' else 'ready' end,
    due_at = case when @delay > 0 then @due else due_at end,
    attempts = attempts - 1,
    token = null,
    lease_until = null{out_of_run}
{note_inserted}output inserted.id, case when inserted.state = 'blocked' then 1 else 0 end
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token and message.cancelled_at is null;

-- name: extend
-- Index: the primary key, sought as in complete. Locks: the rows. A crash leaves all of them extended, or none.
declare @until datetime2(6) = {now_and_lease};
update message
set lease_until = @until
output inserted.id, inserted.lease_until
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token;

-- name: cancel
-- Returns each message, and whether it was told. Index: the primary key, sought as in complete.
-- Locks: the rows; it waits for claims and finishes under way. In one transaction: a crash leaves all or nothing.
declare @message table (id bigint not null primary key, told bit not null, group_key varbinary(1020) null);
insert into @message (id, told, group_key)
select message.id, case when message.state = 'in_progress' then 1 else 0 end, message.group_key
from {queue} as message with (rowlock, updlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);
update message
set cancelled_at = coalesce(message.cancelled_at, @now)
from {queue} as message with (rowlock, forceseek)
where message.id in (select there.id from @message as there where there.told = 1);
-- [keep]
delete from message
output
    {history_row of deleted without token with
        finished_at = @now
        group_key = convert(nvarchar(510), deleted.group_key)
        dedup_key = convert(nvarchar(510), deleted.dedup_key)},
    'cancelled'
into {history} (
    {history_row without token},
    outcome
)
-- [else]
delete from message
-- [end]
from {queue} as message with (rowlock, forceseek)
where message.id in (select there.id from @message as there where there.told = 0);
-- [grouped]
insert into {turns} (group_key)
select group_key from @message where told = 0 group by group_key order by min(id);
-- [end]
select id, told from @message;

-- name: cancel_held
-- If :token is null, those whose lease has expired. :error is kept. UPDLOCK may keep a lock of every row that it looks
-- at, so these messages are found without it first.
-- Index: the primary key, sought as in complete. Locks: the rows. In one transaction: a crash leaves all or nothing.
declare @held table (id bigint not null primary key);
insert into @held (id)
select message.id
from {queue} as message with (rowlock, readcommittedlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.cancelled_at is not null
    and (message.token = @token or (@token is null and message.lease_until <= @now));
declare @message table (id bigint not null primary key, group_key varbinary(1020) null);
insert into @message (id, group_key)
select message.id, message.group_key
from {queue} as message with (rowlock, updlock, forceseek)
where message.id in (select held.id from @held as held)
    and message.cancelled_at is not null
    and (message.token = @token or (@token is null and message.lease_until <= @now));
update message
set errors = {errors_and}
from {queue} as message with (rowlock, forceseek)
where @error is not null and message.id in (select there.id from @message as there);
-- [keep]
delete from message
output
    {history_row of deleted without token with
        finished_at = @now
        group_key = convert(nvarchar(510), deleted.group_key)
        dedup_key = convert(nvarchar(510), deleted.dedup_key)},
    'cancelled'
into {history} (
    {history_row without token},
    outcome
)
-- [else]
delete from message
-- [end]
from {queue} as message with (rowlock, forceseek)
where message.id in (select there.id from @message as there);
-- [grouped]
insert into {turns} (group_key)
select group_key from @message group by group_key order by min(id);
-- [end]
select id from @message;

-- name: told
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that
-- change one of these rows.
select message.id
from {queue} as message with (forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.cancelled_at is not null;

-- name: holder
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that
-- change the row.
select lower(replace(convert(char(36), token), '-', '')) as token
from {queue}
where id = @id and state = 'in_progress' and lease_until is not null;

-- name: reschedule
-- Index: the primary key. Locks: the row; it waits for a claim under way. A crash leaves it as it was.
declare @due datetime2(6) = coalesce(cast(:due as datetime2(6)), {now_and_delay});
update {queue} with (rowlock, forceseek)
set state = case
        when state = 'blocked' or @due is null then state
        when @due > @now then 'scheduled'
        else 'ready'
    end,
    due_at = coalesce(@due, due_at),
    priority = coalesce(@priority, priority)
output inserted.id
where id = @id and state in ('ready', 'scheduled', 'blocked');
