-- The messages at the offsets from :start on and before :end, in their order.
-- Indexes: the primary keys. Locks: none that lasts; it waits for none, as they are committed.
declare @begins bigint = :start;
declare @ends bigint = :end;
declare @pieces table (first_offset bigint not null primary key, low bigint not null, high bigint not null);
set @ends = @ends - 1;
insert into @pieces (first_offset, low, high)
select
    iif(run.first_offset < @begins, @begins, run.first_offset),
    {low},
    {high}
from {runs} as run with (forceseek, readcommittedlock)
where run.first_offset <= @ends
    and run.first_offset >= (
        select coalesce(max(before.first_offset), 0) from {runs} as before with (readcommittedlock)
        where before.first_offset <= @begins
    );
select
    piece.first_offset + message.id - piece.low as message_offset, message.id, message.payload, message.headers,
    convert(nvarchar(510), message.group_key) as group_key, message.producer, message.pushed_at
from @pieces as piece
inner join {log} as message with (forceseek, readcommittedlock) on message.id between piece.low and piece.high
order by piece.first_offset, message.id;
