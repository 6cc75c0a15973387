-- The indexes of the queue, its packs, its history, its ranges, its runs and its keys that can be used. Locks: none.
select index_class.relname
from pg_index
join pg_class as index_class on index_class.oid = pg_index.indexrelid
where indisvalid and indrelid in (
    to_regclass('{queue}'), to_regclass('{history}'), to_regclass('{turns}'), to_regclass('{packs}'),
    to_regclass('{ranges}'), to_regclass('{runs}'), to_regclass('{keys}')
);
