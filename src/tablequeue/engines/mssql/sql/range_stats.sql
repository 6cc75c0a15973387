-- The messages of a subscription that are in the log alone: not claimed yet, in progress, and finished; and the age of
-- the first one not claimed. What the last 100,000 ranges finished is counted. If there are more ranges, it is an
-- estimate: as many messages as there are offsets from the first range on.
-- Indexes: {table}__last, {table}__lease, the primary keys.
-- Locks: none under READ_COMMITTED_SNAPSHOT, but for the two READCOMMITTEDLOCK that wait for a claim. Without that
-- option it waits for transactions that finish messages. READPAST passes over messages in flight.
declare @now datetime2(6) = {now};
declare @next bigint;
declare @end bigint;
declare @last bigint;
declare @first bigint;
select top (1) @next = last_offset + 1
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
select @next = iif(@next > min(first_offset), @next, min(first_offset) + 1)
from {runs} with (readcommittedlock);
select top (1) @end = first_offset + last_id - first_id + 1
from {runs} with (readpast, readcommittedlock)
order by first_offset desc;
select top (1) @last = last_id
from {runs} with (readpast, readcommittedlock)
order by last_id desc;
select top (1) @first = first_offset
from {ranges}
order by id;
select
    case when @end > @next then @end - @next else 0 end
        + (select count_big(*) from {log} with (readpast, readcommittedlock) where id > @last) as ready,
    (
        select coalesce(sum(cast(held.messages - gone.number as bigint)), 0)
        from {ranges} as held
        cross apply (select count(*) as number from openjson(held.left_ids)) as gone
        where held.lease_until is not null
    ) as in_progress,
    (
        select case
            when count(*) < 100000 then coalesce(sum(claimed.finished), 0)
            when sum(claimed.finished) > max(claimed.last_offset) - @first + 1 then sum(claimed.finished)
            else max(claimed.last_offset) - @first + 1
        end
        from (
            select top (100000) last_offset, cast({finished_messages} as bigint) as finished
            from {ranges}
            where messages > 0
            order by id desc
        ) as claimed
    ) as finished,
    (
        select datediff_big(microsecond, message.pushed_at, @now) / 1e6
        from {log} as message with (readpast, readcommittedlock)
        where message.id = coalesce(
            (
                select top (1) run.first_id + @next - run.first_offset
                from {runs} as run
                where run.first_offset <= @next and @next < @end
                order by run.first_offset desc
            ),
            (select min(id) from {log} with (readpast, readcommittedlock) where id > @last)
        )
    ) as oldest_age;
