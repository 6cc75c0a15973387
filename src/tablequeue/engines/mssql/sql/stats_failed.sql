-- The failed attempts of less than :age seconds ago, the consumer of each and how many seconds ago it was: of up to
-- :live messages of each state in the queue, and of the last :n that left it since then.
-- Indexes: those of the states; {table}__finished. Locks: none under READ_COMMITTED_SNAPSHOT. Without
-- that option: shared locks while it reads, and it waits for transactions that change a row.
declare @n bigint = :n;
declare @live bigint = :live;
declare @age float = cast(:age as float);
declare @now datetime2(6) = {now};
declare @since datetime2(6) = {now_less_age};
select error.consumer, datediff_big(microsecond, error.failed_at, @now) / 1e6 as ago
from (
    select errors from (select top (@live) errors from {queue} where state = 'ready') as ready
    union all
    select errors from (
        select top (@live) errors from {queue} where state = 'scheduled' order by due_at desc
    ) as scheduled
    union all
    select errors from (
        select top (@live) errors from {queue} where state = 'in_progress' order by lease_until desc
    ) as in_progress
    union all
    select errors from (select top (@live) errors from {queue} where state = 'dead' order by id desc) as dead
    union all
    select errors from (select top (@live) errors from {queue} where state = 'blocked') as blocked
    union all
    select errors from (
        select top (@n) errors from {history}
        where finished_at > @since and finished_at <= @now
        order by finished_at desc
    ) as finished
) as message
cross apply openjson(message.errors) with (consumer nvarchar(512) '$.consumer', failed_at datetime2(6) '$.at') as error
where error.failed_at > @since and error.failed_at <= @now;
