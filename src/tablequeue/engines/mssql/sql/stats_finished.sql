-- Of the last :n messages that were completed less than :age seconds ago, the last one first: producer, consumer,
-- seconds of wait and of run, attempts, and how many seconds ago each was completed.
-- Index: {table}__finished. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it
-- reads, and it waits for transactions that change a row.
declare @n bigint = :n;
declare @age float = cast(:age as float);
declare @now datetime2(6) = {now};
declare @since datetime2(6) = {now_less_age};
select top (@n)
    producer,
    consumer,
    datediff_big(microsecond, pushed_at, first_popped_at) / 1e6 as wait,
    datediff_big(microsecond, popped_at, finished_at) / 1e6 as run,
    attempts,
    datediff_big(microsecond, finished_at, @now) / 1e6 as ago
from {history}
where finished_at > @since and finished_at <= @now and outcome is null
order by finished_at desc;
