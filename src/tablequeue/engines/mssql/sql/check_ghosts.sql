-- Ghost records of the queue and its indexes, where they are many: removed rows that claims still walk over.
-- Reads a sample of the pages. Locks: intent-shared ones.
select sum(ghost_record_count + version_ghost_record_count) as ghosts
from sys.dm_db_index_physical_stats(db_id(), object_id(N'{queue}'), null, null, 'SAMPLED')
having sum(ghost_record_count + version_ghost_record_count) > 50000;
