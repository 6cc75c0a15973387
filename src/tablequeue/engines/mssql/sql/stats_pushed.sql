-- Of the :n messages with the highest ids, live or not, those pushed less than :age seconds ago, summed up by moment:
-- the producer, how many seconds ago, and the number of messages.
-- Index: the primary keys, backwards, for :n rows each: no index has the time of a push, but ids rise with it.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads, and it waits for
-- transactions that change a row.
declare @n bigint = :n;
declare @age float = cast(:age as float);
declare @now datetime2(6) = {now};
declare @since datetime2(6) = {now_less_age};
select producer, datediff_big(microsecond, pushed_at, @now) / 1e6 as ago, count_big(*) as pushed
from (
    select top (@n) producer, pushed_at
    from (
        select id, producer, pushed_at from (
            select top (@n) id, producer, pushed_at from {queue} order by id desc
        ) as live
        union all
        select id, producer, pushed_at from (
            select top (@n) id, producer, pushed_at from {history} order by id desc
        ) as ended
    ) as pushed
    order by id desc
) as newest
where pushed_at > @since and pushed_at <= @now
group by producer, pushed_at;
