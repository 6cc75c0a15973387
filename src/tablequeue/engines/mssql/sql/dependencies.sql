-- Dependencies: messages that wait until others have left their queues.

-- name: create_dependencies
-- No lock escalation: it would stop the pushes and sweeps of other queues.
-- Runs in one transaction: a crash leaves nothing.
if object_id(N'{dependencies}', N'U') is null
begin
    create table {dependencies} (
        id bigint identity (1, 1) not null constraint pk_tq__dependencies primary key clustered,
        queue varchar(128) collate Latin1_General_100_BIN2 not null,
        message bigint not null,
        on_table varchar(128) collate Latin1_General_100_BIN2 not null,
        on_id bigint not null,
        on_dead varchar(8) collate Latin1_General_100_BIN2 not null,
        delay float null,
        due datetime2(6) null
    );
    alter table {dependencies} set (lock_escalation = disable);
    create index tq__dependencies_queue on {dependencies} (queue, on_table, id) include (message, on_id, on_dead);
    create index tq__dependencies_message on {dependencies} (queue, message) include (on_table);
    create index tq__dependencies_on on {dependencies} (on_table);
end;

-- name: drop_dependencies
-- In one transaction with the queue. READPAST: a plan may look at rows of other queues, which are locked. The rows of
-- this one no transaction has.
delete from {dependencies} with (rowlock, readpast, readcommittedlock) where queue = '{table}';

-- name: add_dependencies
-- Note what the messages wait for that the same transaction pushes: the rows of the JSON array :rows, heads among them.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
insert into {dependencies} (queue, message, on_table, on_id, on_dead, delay, due)
select '{table}', given.message, given.on_table, given.on_id, given.on_dead, given.delay, given.due
from openjson(@rows) with (
    message bigint '$.message',
    on_table varchar(128) '$.on_table',
    on_id bigint '$.on_id',
    on_dead varchar(8) '$.on_dead',
    delay float '$.delay',
    due datetime2(6) '$.due'
) as given;

-- name: existing_ids
-- Indexes: the primary keys, sought as in complete.
-- Locks: none under READ_COMMITTED_SNAPSHOT; else it waits for transactions that change one of these rows.
select message.id
from {queue} as message with (forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
-- [keep]
union all
select message.id
from {history} as message with (forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
-- [end]
;

-- name: awaited_tables
-- Rows of pushes that are not committed are passed over. Index: tq__dependencies_queue.
-- Locks: shared ones while it reads.
select distinct on_table
from {dependencies} with (index (tq__dependencies_queue), rowlock, readpast, readcommittedlock)
where queue = '{table}';

-- name: waits_for
-- Index: tq__dependencies_message. Locks: none under READ_COMMITTED_SNAPSHOT; else shared ones.
select waiting.message, sum(case when waiting.on_table <> '' then 1 else 0 end) as number
from {dependencies} as waiting with (index (tq__dependencies_message))
where waiting.queue = '{table}'
    and waiting.message in (select given.id from openjson(@ids) with (id bigint '$') as given)
group by waiting.message;

-- name: is_awaited
-- Index: tq__dependencies_on.
-- Locks: none under READ_COMMITTED_SNAPSHOT; else it waits for a push whose messages wait for some.
select top (1) 1 as awaited
from {dependencies} with (index (tq__dependencies_on))
where on_table = '{table}';

-- name: ended_dependencies
-- The first statement passes over rows of pushes that are not committed. The second one tests again what it found:
-- under READ_COMMITTED_SNAPSHOT a statement sees the messages as they were at its start, so that the first one may find
-- a row whose message was pushed since then, and not the message.
-- Whether a message is there is asked of its primary key alone, where it has one place whatever else changes.
-- Indexes: tq__dependencies_queue, the primary keys. Locks: shared ones while it reads. Without READ_COMMITTED_SNAPSHOT
-- it waits for transactions that change a message that others wait for, up to the lock time-out; dependencies.py then
-- leaves the rows for the next sweep.
declare @found table (id bigint not null primary key);
insert into @found (id)
select top (@n) waiting.id
from {dependencies} as waiting with (index (tq__dependencies_queue), rowlock, readpast, readcommittedlock)
{of_awaited}
where waiting.queue = '{table}' and waiting.on_table = @on_table and {has_ended}
order by waiting.id;
select
    waiting.id,
    waiting.message,
    case
        when died.is_dead = 1 and waiting.on_dead = 'cancel' and exists (
            select 1 from {queue} as message with (forceseek)
            where message.id = waiting.message and message.due_at = @due
        ) then 1
        else 0
    end as cancels
from @found as found
inner join {dependencies} as waiting with (forceseek) on waiting.id = found.id
{of_awaited}
where {has_ended}
order by waiting.id;

-- name: orphaned_dependencies
-- Index: tq__dependencies_queue. Locks: shared ones while it reads; locked rows are passed over.
select top (@n) id
from {dependencies} with (index (tq__dependencies_queue), rowlock, readpast, readcommittedlock)
where queue = '{table}' and on_table = @on_table
order by id;

-- name: freed_heads
-- Heads of pushes that are not committed are passed over; for the other rows of a head that is committed it waits,
-- until a sweep that deletes them has committed. READCOMMITTEDLOCK in both: if one look saw the rows as they were at
-- the start of the statement, and the other one as they are, the head of a push that commits meanwhile would be found
-- without the others. Indexes: tq__dependencies_queue, tq__dependencies_message.
-- Locks: shared ones while it reads.
select top (@n) head.id
from {dependencies} as head with (index (tq__dependencies_queue), rowlock, readpast, readcommittedlock)
where head.queue = '{table}' and head.on_table = '' and not exists (
    select 1 from {dependencies} as waiting with (index (tq__dependencies_message), rowlock, readcommittedlock)
    where waiting.queue = '{table}' and waiting.message = head.message and waiting.on_table <> ''
)
order by head.id;

-- name: free_heads
-- Index: the primary keys, sought as in complete. Locks: the messages, which no consumer can have. A crash leaves all
-- or nothing.
update message
set due_at = case when head.due > later.due then head.due else later.due end
from {dependencies} as head with (forceseek)
cross apply (
    select {now_and_head_delay} as due
) as later
inner join {queue} as message with (rowlock, forceseek) on message.id = head.message
where head.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.due_at = @due and message.state in ('scheduled', 'blocked');

-- name: waiting_fronts
-- Indexes: {table}__scheduled, {table}__blocked. Locks: shared ones while it reads. A message that another transaction
-- has locked is passed over: the next sweep finds it.
select top (@n) front.id
from {queue} as front with (rowlock, readpast, readcommittedlock)
where front.state = 'scheduled' and front.due_at = @due and exists (
    select 1 from {queue} as earlier with (rowlock, readpast, readcommittedlock)
    where earlier.group_key = front.group_key and earlier.state = 'blocked' and earlier.id < front.id
);

-- name: block_fronts
-- Block those of :ids that still wait for others, and note their groups, so that promote takes the lowest id.
-- Index: the primary key. Locks: the messages, which no consumer can have. A crash leaves all or nothing.
update message
set state = 'blocked'
{note_inserted}from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state = 'scheduled' and message.due_at = @due;

-- name: forget_dependencies
-- Index: the primary key. Locks: the rows. A crash leaves all or nothing.
delete from waiting
from {dependencies} as waiting with (rowlock, forceseek)
where waiting.id in (select given.id from openjson(@ids) with (id bigint '$') as given);
