-- The messages of :ids, which ranges under :token hold, become rows of the subscription's queue: ready after :delay
-- seconds, or dead letters if :attempts is :max_attempts.
-- A seek leaves no message both apart and in the log. Older versions did: then this is its state now, unless a consumer
-- holds it apart.
-- FOR XML PATH joins ids, as in range_mark.
-- Indexes: {table}__token, the primary keys, sought as in complete_keep. Locks: the rows, of at most 1,000 messages. In
-- one transaction with range_hold and range_mark: a crash leaves the messages in progress until the lease expires.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @attempts int = :attempts;
declare @max_attempts int = :max_attempts;
declare @delay float = cast(:delay as float);
declare @error nvarchar(max) = cast(:error as nvarchar(max));
declare @now datetime2(6) = {now};
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
cross join openjson(@ids) with (id bigint '$') as given
cross apply (
    select top (1) run.first_offset + given.id - run.first_id as message_offset
    from {runs} as run
    where run.last_id >= given.id
    order by run.last_id
) as place
where place.message_offset between held.first_offset and held.last_offset;
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
