-- The indexes of the queue and of its history that can be used. Locks: none.
select name
from sys.indexes
where object_id in (object_id(N'{queue}'), object_id(N'{history}'), object_id(N'{turns}'))
    and is_disabled = 0 and name is not null;
