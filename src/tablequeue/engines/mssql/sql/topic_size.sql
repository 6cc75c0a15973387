-- The bytes of the log with its indexes, as the database knows them. Locks: none.
select cast(coalesce(sum(unit.total_pages), 0) as bigint) * 8192 as bytes
from sys.partitions as part
inner join sys.allocation_units as unit on unit.container_id in (part.hobt_id, part.partition_id)
where part.object_id = object_id(N'{log}');
