-- Messages that leave their range: how they are detached, and what ends with them.

-- name: range_hold
-- Lock the ranges under :token. Return the messages of :ids that they hold: those that have not left them.
-- Indexes: {table}__token, the index of the runs by last_id. Locks: the rows.
declare @held table (
    id bigint not null primary key,
    first_offset bigint not null,
    last_offset bigint not null,
    left_ids varchar(max) null
);
declare @gone table (id bigint not null primary key);
insert into @held (id, first_offset, last_offset, left_ids)
select id, first_offset, last_offset, left_ids
from {ranges} with (index ({table}__token), rowlock, updlock, readcommittedlock)
where token = @token and lease_until is not null;
insert into @gone (id)
select distinct gone.id
from @held as held
cross apply openjson(held.left_ids) with (id bigint '$') as gone;
select given.id
from openjson(@ids) with (id bigint '$') as given
cross apply (
    select top (1) run.first_id, run.first_offset + given.id - run.first_id as message_offset
    from {runs} as run
    where run.last_id >= given.id
    order by run.last_id
) as place
where place.first_id <= given.id
    and exists (
        select 1 from @held as held where place.message_offset between held.first_offset and held.last_offset
    )
    and not exists (select 1 from @gone as gone where gone.id = given.id);

-- name: range_detach
-- The messages of :ids, which ranges under :token hold, become rows of the subscription's queue: ready after :delay
-- seconds, or dead letters if :attempts is :max_attempts.
-- A seek leaves no message both detached and in the log. Older versions did: then this is its state, unless a consumer
-- holds it detached.
-- FOR XML PATH joins ids, as in range_mark.
-- Indexes: {table}__token, the primary keys, sought as in complete. Locks: the rows, of at most 1,000 messages. In
-- one transaction with range_hold and range_mark: a crash leaves the messages in progress until the lease expires.
declare @attempts int = :attempts;
declare @due datetime2(6) = {now_and_delay};
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
    from {ranges} with (index ({table}__token), rowlock, updlock, readcommittedlock)
    where token = @token and lease_until is not null
) as held
{those_they_hold};
delete from message
from {history} as message with (rowlock, forceseek)
where message.id in (select one.id from @left as one);
delete from message
from {queue} as message with (rowlock, forceseek)
where message.id in (select one.id from @left as one) and message.state <> 'in_progress';
insert into {queue} (
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
inner join {log} as message with (forceseek) on message.id = one.id
where not exists (select 1 from {queue} as held where held.id = one.id);
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
inner join {ranges} as held with (rowlock, forceseek) on held.id = marked.range_id
where held.token = @token and held.lease_until is not null;

-- name: range_mark
-- Mark the messages of :ids, which ranges under :token hold, as left. A range is finished when all have left it.
-- Indexes: {table}__token, the primary key. Locks: the rows, which range_hold has locked. In one transaction with it.
-- A crash leaves the messages in progress until the lease expires.
-- FOR XML PATH joins the ids: STRING_AGG would need SQL Server 2017.
declare @left table (range_id bigint not null, id bigint not null, primary key (range_id, id));
insert into @left (range_id, id)
select held.id, given.id
from (
    select id, first_offset, last_offset
    from {ranges} with (index ({table}__token), rowlock, updlock, readcommittedlock)
    where token = @token and lease_until is not null
) as held
{those_they_hold};
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
inner join {ranges} as held with (rowlock, forceseek) on held.id = marked.range_id
cross apply (select count(*) as number from openjson(held.left_ids)) as gone
where held.token = @token and held.lease_until is not null;

-- name: range_purge
-- Delete the ranges that have no message any more at or after the offset :start, but for the last one, after which the
-- next claim begins. 1,000 a statement, each for itself: a crash leaves the others for the next call.
-- Indexes: {table}__last, the primary key. Locks: the rows; locked rows are skipped.
declare @last bigint;
declare @deleted bigint = 1000;
select top (1) @last = id
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
while @deleted = 1000
begin
    delete top (1000) from {ranges} with (rowlock, readpast, readcommittedlock)
    where id < @last and last_offset < @start and lease_until is null;
    set @deleted = rowcount_big();
end;

-- name: range_expired
-- Up to :n ranges whose lease has expired. Index: {table}__lease. Locks: the rows; locked rows are skipped.
select top (@n) id
from {ranges} with (index ({table}__lease), rowlock, readpast, updlock, readcommittedlock)
where lease_until is not null and lease_until <= @now
order by lease_until;

-- name: range_expire
-- The messages that have not left range :id, whose lease has expired, become rows of the subscription's queue: ready,
-- or dead letters if one attempt was all they had. The range is not in progress any more.
-- Indexes: the primary keys. Locks: the rows. No statement writes more than 1,000 messages, see create. In one
-- transaction with range_expired: a crash leaves all or nothing.
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
from {ranges}
where id = @id;
insert into @gone (id)
select distinct gone.id
from openjson(@left_ids) with (id bigint '$') as gone;
insert into @lost (id)
select message.id
from {runs} as run with (forceseek)
inner join {log} as message with (forceseek)
    on message.id between {low}
        and {high}
where run.first_offset <= @ends
    and run.first_offset >= (
        select max(before.first_offset) from {runs} as before where before.first_offset <= @begins
    )
    and not exists (select 1 from @gone as gone where gone.id = message.id);
while 1 = 1
begin
    select @upto = max(step.id)
    from (select top (1000) one.id from @lost as one where one.id > @after order by one.id) as step;
    if @upto is null break;
    delete from message
    from {history} as message with (rowlock, forceseek)
    where message.id in (select one.id from @lost as one where one.id > @after and one.id <= @upto);
    delete from message
    from {queue} as message with (rowlock, forceseek)
    where message.id in (select one.id from @lost as one where one.id > @after and one.id <= @upto)
        and message.state <> 'in_progress';
    insert into {queue} (
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
    inner join {log} as message with (forceseek) on message.id = one.id
    where one.id > @after and one.id <= @upto
        and not exists (select 1 from {queue} as held where held.id = one.id);
    set @after = @upto;
end;
update {ranges} with (rowlock)
set lease_until = null
where id = @id;

-- name: range_pump
-- Move the next :n messages of the log to the queue of an ordered subscription, and the position past them. Returns
-- their ids. In one transaction with range_lock: one session moves messages at a time.
-- A message without a group, which an older log may have, is in the group without a name.
-- Indexes: {table}__last, the primary keys. Locks: the new rows; READPAST as in range_claim. A crash leaves all or
-- nothing.
declare @begins bigint;
declare @ends bigint;
declare @dropped bigint;
declare @moved table (id bigint not null primary key, first_offset bigint not null);
{next_offsets};
insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
select @begins, @ends, 0, 0, @now, @now
where @begins <= @ends;
insert into @moved (id, first_offset)
select message.id, run.first_offset
from {runs} as run with (forceseek, readcommittedlock)
inner join {log} as message with (forceseek, readcommittedlock)
    on message.id between {low}
        and {high}
{runs_with_them};
delete from message
from {history} as message with (rowlock, forceseek)
where message.id in (select moved.id from @moved as moved);
insert into {queue} (id, state, pushed_at, group_key, producer, headers, payload)
{note_inserted}output inserted.id
select
    moved.id, '{pushed_ready}', message.pushed_at, coalesce(message.group_key, 0x), message.producer, message.headers,
    message.payload
from @moved as moved
inner join {log} as message with (forceseek, readcommittedlock) on message.id = moved.id
where not exists (select 1 from {queue} as there where there.id = moved.id)
order by moved.first_offset, moved.id;
