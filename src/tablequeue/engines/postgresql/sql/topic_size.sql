-- The bytes of the log with its indexes, as the database knows them. Locks: none.
select cast(coalesce(sum(pg_total_relation_size(relid)), 0) as bigint)
from pg_partition_tree(cast('{log}' as regclass));
