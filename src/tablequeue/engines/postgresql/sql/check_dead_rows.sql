-- Dead rows of the queue, beside its live ones, where autovacuum does not keep up: it is told to come at 10,000.
-- Counted by the statistics of the server, so about. Locks: none.
select n_dead_tup, n_live_tup
from pg_stat_user_tables
where relid = cast('{queue}' as regclass) and n_dead_tup > 50000;
