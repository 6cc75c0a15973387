-- Counts by state, each from its filtered index, and the age in seconds of the first ready message.
-- Under READ_COMMITTED_SNAPSHOT all counts are of one moment, and it takes no locks. Without that option each count has
-- a moment of its own, and it waits for transactions that change a row.
declare @now datetime2(6) = {now};
select
    (select count_big(*) from {queue} where state = 'ready') as ready,
    (select count_big(*) from {queue} where state = 'scheduled') as scheduled,
    (select count_big(*) from {queue} where state = 'in_progress') as in_progress,
    (select count_big(*) from {queue} where state = 'dead') as dead,
    (select count_big(*) from {queue} where state = 'blocked') as blocked,
    (
        select top (1) datediff_big(microsecond, pushed_at, @now) / 1e6
        from {queue} where state = 'ready' order by id
    ) as oldest_age;
