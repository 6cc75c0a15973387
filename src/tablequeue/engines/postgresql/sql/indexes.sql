-- The indexes of the queue and of its history that can be used. Locks: none.
select index_class.relname
from pg_index
join pg_class as index_class on index_class.oid = pg_index.indexrelid
where indrelid in (to_regclass('{queue}'), to_regclass('{history}'), to_regclass('{turns}')) and indisvalid;
