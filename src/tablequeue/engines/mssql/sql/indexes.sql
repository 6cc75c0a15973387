-- The indexes of the queue, its history and its ranges that can be used. Locks: none.
select name
from sys.indexes
where object_id in (object_id(N'{queue}'), object_id(N'{history}'), object_id(N'{turns}'), object_id(N'{ranges}'),
    object_id(N'{keys}'))
    and is_disabled = 0 and name is not null;
