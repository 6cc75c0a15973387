-- Moves of messages to another queue, and between databases.

-- name: create_moving
-- No lock escalation: it would stop other moves.
-- Made at the first such move, under the creators' lock. Runs in one transaction: a crash leaves nothing.
if object_id(N'{moving}', N'U') is null
begin
    create table {moving} (
        id bigint not null constraint pk_{table}__moving primary key clustered,
        state varchar(11) collate Latin1_General_100_BIN2 not null,
        attempts int not null,
        priority int not null,
        token char(32) collate Latin1_General_100_BIN2 not null,
        pushed_at datetime2(6) not null,
        {moving_table},
        payload {payload_type} not null
    );
    alter table {moving} set (lock_escalation = disable);
    create table {moved} (
        id bigint not null,
        token char(32) collate Latin1_General_100_BIN2 not null,
        new_id bigint not null,
        constraint pk_{table}__moved primary key clustered (id, token)
    );
    alter table {moved} set (lock_escalation = disable);
end;

-- name: move
-- A new id is missing for each whose key a message of this queue has; then the caller rolls back. The identities rise
-- in the order of the select, as in push_many. UPDLOCK may keep a lock of every row that it looks at, so the messages
-- that no consumer holds are found without it first.
-- Indexes: the primary keys, sought as in complete; {table}__key. Locks: the rows. In one transaction: a crash
-- leaves each message in one of the queues. The answer has the group for the notes of promote.
declare @free table (id bigint not null primary key);
declare @moved table (id bigint not null primary key, group_key varbinary(1020) null);
declare @pushed table (id bigint not null primary key);
insert into @free (id)
select message.id
from {source} as message with (rowlock, readcommittedlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state in ('ready', 'scheduled', 'blocked', 'dead');
insert into @moved (id, group_key)
select message.id, message.group_key
from {source} as message with (rowlock, updlock, readcommittedlock, forceseek)
where message.id in (select free.id from @free as free)
    and message.state in ('ready', 'scheduled', 'blocked', 'dead');
insert into {queue} (
    state,
    {queue_row without id state token lease_until}{expires_at}
)
output inserted.id into @pushed (id)
select
    case
        when state = 'dead' then 'dead'
        when due_at > @now then '{pushed_scheduled}'
        else '{pushed_ready}'
    end,
    {queue_row without id state token lease_until with
        due_at = {moved_due}
        group_key = {moved_group}}{expires_at}
from {source} as message with (forceseek)
where message.id in (select moved.id from @moved as moved)
    and not exists (
        select 1 from {queue} as there with (readcommittedlock)
        where there.dedup_key = message.dedup_key and there.dedup_key is not null
    )
order by message.id;
delete from message
from {source} as message with (rowlock, forceseek)
where message.id in (select moved.id from @moved as moved);
select id, cast(0 as bit) as is_new, convert(nvarchar(510), group_key) as group_key from @moved
union all
select id, cast(1 as bit), null from @pushed;

-- name: waiting
-- Lock up to :n messages with ids above :after, up to :high, that no consumer holds, in the order of their ids. One
-- statement for all states: a message whose state changes meanwhile is not passed over.
-- Index: the primary key. Locks: the rows; it waits for claims and takes under way. A crash leaves nothing.
select top (@n) id, convert(nvarchar(510), group_key) as group_key, convert(nvarchar(510), dedup_key) as dedup_key
from {queue} with (rowlock, updlock, readcommittedlock, forceseek)
where id > @after and id <= @high and state <> 'in_progress'
order by id;

-- name: busy_groups
-- Index: {table}__in_progress. Locks: none under READ_COMMITTED_SNAPSHOT.
select distinct convert(nvarchar(510), group_key) as group_key from {queue}
where state = 'in_progress'
option (recompile);

-- name: set_aside
-- Index: the primary key, sought as in complete. Locks: the rows. In one transaction: a crash leaves all in the
-- queue, or all aside.
declare @token char(32) = cast(:token as char(32));
insert into {moving} (
    {queue_row without lease_until}, expires_at
)
select
    {queue_row without lease_until with token = @token}, expires_at
from {queue} as message with (forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);
delete from message
{note_deleted}output deleted.id
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);

-- name: aside
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT.
select top (@n)
    {live_columns without lease_until finished_at}, token, expires_at
from {moving}
where id > @after
order by id;

-- name: forget_aside
-- Index: the primary key. Locks: the rows. A crash leaves them, and the next move finds that they are there.
delete from message
from {moving} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);

-- name: find_moved
-- Index: the primary key. Locks: shared ones while it reads.
select message.id, message.token, message.new_id
from {moved} as message with (readcommittedlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);

-- name: put_aside
-- Put the messages of another database in the JSON array :rows where move finds them, in the transaction in which it
-- moves them into this queue.
-- Locks: the rows. A crash before the commit leaves nothing.
insert into {moving} (
    {queue_row without lease_until}, expires_at
)
select
    {queue_row without lease_until with
        group_key = convert(varbinary(1020), given.group_key)
        dedup_key = convert(varbinary(1020), given.dedup_key)
        payload = {payload_of_row}}, expires_at
from openjson(@rows) with (
    id bigint '$.id',
    state varchar(11) '$.state',
    attempts int '$.attempts',
    priority int '$.priority',
    token char(32) '$.token',
    pushed_at datetime2(6) '$.pushed_at',
    due_at datetime2(6) '$.due',
    first_popped_at datetime2(6) '$.first_popped_at',
    popped_at datetime2(6) '$.popped_at',
    expires_at datetime2(6) '$.expires_at',
    group_key nvarchar(510) '$.group',
    dedup_key nvarchar(510) '$.key',
    producer nvarchar(512) '$.producer',
    consumer nvarchar(512) '$.consumer',
    headers nvarchar(max) '$.headers',
    errors nvarchar(max) '$.errors',
    payload nvarchar(max) '$.payload'
) as given;

-- name: note_moved
-- Note the messages of the JSON array :rows that came from another database: the id that each had, its token,
-- and its id here. If two moves bring the same one at once, the primary key refuses the second.
-- In one transaction with move: a crash leaves both, or none.
insert into {moved} (id, token, new_id)
select given.id, given.token, given.new_id
from openjson(@rows) with (
    id bigint '$.id',
    token char(32) '$.token',
    new_id bigint '$.new_id'
) as given;

-- name: put_history
-- Copy the messages of the JSON array :rows, of the history of another database, into this one, under
-- new ids.
-- In one transaction with note_moved: a crash leaves both, or none.
insert into {history} (
    {history_row without token}, outcome
)
select
    {history_row without token with payload = {payload_of_row}}, outcome
from openjson(@rows) with (
    id bigint '$.id',
    attempts int '$.attempts',
    priority int '$.priority',
    pushed_at datetime2(6) '$.pushed_at',
    due_at datetime2(6) '$.due',
    first_popped_at datetime2(6) '$.first_popped_at',
    popped_at datetime2(6) '$.popped_at',
    finished_at datetime2(6) '$.finished_at',
    outcome varchar(9) '$.outcome',
    group_key nvarchar(510) '$.group',
    dedup_key nvarchar(510) '$.key',
    producer nvarchar(512) '$.producer',
    consumer nvarchar(512) '$.consumer',
    headers nvarchar(max) '$.headers',
    errors nvarchar(max) '$.errors',
    payload nvarchar(max) '$.payload'
) as given;
