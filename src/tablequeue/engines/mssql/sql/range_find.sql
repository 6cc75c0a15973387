-- Message :id, if it is in the log, and it is ready or a range in progress holds it. After a seek the last range
-- counts.
-- Indexes: the primary keys, that of the runs by last_id; the ranges are read backwards until one has it.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @id bigint = :id;
declare @offset bigint;
declare @position bigint;
declare @consumer nvarchar(512);
declare @popped_at datetime2(6);
declare @lease_until datetime2(6);
declare @left_ids varchar(max);
select top (1) @offset = case when first_id <= @id then first_offset + @id - first_id end
from {runs}
where last_id >= @id
order by last_id;
select top (1) @position = last_offset + 1
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
select @position = iif(@position > min(first_offset), @position, min(first_offset) + 1)
from {runs};
select top (1) @consumer = consumer, @popped_at = popped_at, @lease_until = lease_until, @left_ids = left_ids
from {ranges}
where first_offset <= @offset and last_offset >= @offset and @offset < @position
order by id desc;
select
    {history_columns with
        state = state
        lease_until = lease_until}
from (
    select
        {log_columns with
            state = case when @popped_at is null then 'ready' else 'in_progress' end as state
            attempts = case when @popped_at is null then 0 else 1 end as attempts
            consumer = @consumer as consumer
            first_popped_at = @popped_at as first_popped_at
            popped_at = @popped_at as popped_at
            lease_until = @lease_until as lease_until
            finished_at = cast(null as datetime2(6)) as finished_at}
    from {log} with (readpast, readcommittedlock)
    where id = @id
) as found
where @offset is null or @offset >= @position
    or (
        @lease_until is not null
        and not exists (select 1 from openjson(@left_ids) with (id bigint '$') as gone where gone.id = @id)
    );
