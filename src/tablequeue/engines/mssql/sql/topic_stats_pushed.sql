-- Count the messages pushed less than :age seconds ago by moment, among the :n highest ids of the log. Returns the
-- producer, how many seconds ago, and the number of messages.
-- Index: the primary key, backwards, for :n rows: no index has the time of a push, but ids rise with it.
-- Locks: none that lasts. READPAST passes over messages in flight.
declare @n bigint = :n;
declare @age float = cast(:age as float);
declare @now datetime2(6) = {now};
declare @since datetime2(6) = {now_less_age};
select producer, datediff_big(microsecond, pushed_at, @now) / 1e6 as ago, count_big(*) as pushed
from (
    select top (@n) producer, pushed_at
    from {log} with (readpast, readcommittedlock)
    order by id desc
) as newest
where pushed_at > @since and pushed_at <= @now
group by producer, pushed_at;
