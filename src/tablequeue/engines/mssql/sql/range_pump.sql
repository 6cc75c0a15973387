-- Move the next :n messages of the log to the queue of an ordered subscription, and the position past them. Returns
-- their ids. In one transaction with range_lock: one session moves messages at a time.
-- A message without a group, which an older log may have, is in the group without a name.
-- Indexes: {table}__last, the primary keys. Locks: the new rows; READPAST as in range_claim. A crash leaves all or
-- nothing.
declare @n bigint = :n;
declare @now datetime2(6) = {now};
declare @begins bigint;
declare @ends bigint;
declare @dropped bigint;
declare @moved table (id bigint not null primary key, first_offset bigint not null);
select top (1) @begins = last_offset + 1
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
select @dropped = min(first_offset), @begins = iif(@begins > min(first_offset), @begins, min(first_offset) + 1)
from {runs} with (readcommittedlock);
select top (1) @ends = first_offset + last_id - first_id
from {runs} with (readpast, readcommittedlock)
order by first_offset desc;
if @ends > @begins + @n - 1
    set @ends = @begins + @n - 1;
insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
select @begins, @ends, 0, 0, @now, @now
where @begins <= @ends;
insert into @moved (id, first_offset)
select message.id, run.first_offset
from {runs} as run with (forceseek, readcommittedlock)
inner join {log} as message with (forceseek, readcommittedlock)
    on message.id between {low}
        and {high}
where run.first_offset > @dropped
    and run.first_offset <= @ends
    and run.first_offset >= (
        select max(before.first_offset) from {runs} as before with (readcommittedlock)
        where before.first_offset <= @begins
    );
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
