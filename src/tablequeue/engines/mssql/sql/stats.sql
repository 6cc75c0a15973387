-- Counts by state, each from its filtered index, and the age in seconds of the first ready message.
-- Of one moment, and without locks, under READ_COMMITTED_SNAPSHOT; else of one moment for each state, and it waits for
-- who is changing a row.
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
