-- The messages that have not left range :id, whose lease has expired, become rows of the subscription's queue: ready,
-- or dead letters if one attempt was all they had. The range is not in progress any more.
-- Indexes: the primary keys. Locks: the rows. No statement writes more than 1,000 messages, see create. In one
-- transaction with range_expired: a crash leaves all or nothing.
declare @id bigint = :id;
declare @max_attempts int = :max_attempts;
declare @now datetime2(6) = {now};
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
