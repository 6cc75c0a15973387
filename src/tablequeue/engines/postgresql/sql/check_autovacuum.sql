-- Whether autovacuum passes the queue over. Locks: none.
select relname
from pg_class
where oid = cast('{queue}' as regclass)
    and reloptions && array['autovacuum_enabled=false', 'autovacuum_enabled=off', 'autovacuum_enabled=0'];
