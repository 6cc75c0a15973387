-- What the log has: the number of its messages, the bytes as the database knows them, and the seconds since the first
-- message was pushed. Messages in holes are not counted.
-- Indexes: the primary keys, that of the runs by last_id. Locks: as range_stats.
declare @now datetime2(6) = {now};
declare @last bigint;
select top (1) @last = last_id
from {runs} with (readpast, readcommittedlock)
order by last_id desc;
select
    (select max(first_offset + last_id - first_id) - min(first_offset) from {runs})
        + (select count_big(*) from {log} with (readpast, readcommittedlock) where id > @last) as messages,
    (
        select cast(coalesce(sum(used_page_count), 0) * 8192 as bigint)
        from sys.dm_db_partition_stats
        where object_id = object_id(N'{log}')
    ) as bytes,
    (
        select top (1) datediff_big(microsecond, message.pushed_at, @now) / 1e6
        from {log} as message with (readpast, readcommittedlock)
        order by message.id
    ) as oldest_age;
