-- The bytes of the log with its index, as the database knows them. Locks: none.
select cast(coalesce(sum(used_page_count), 0) * 8192 as bigint)
from sys.dm_db_partition_stats
where object_id = object_id(N'{log}');
