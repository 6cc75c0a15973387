-- The indexes of the queue, its history and its ranges. Locks: none.
select distinct index_name
from information_schema.statistics
where table_schema = {database}
    and table_name in ('{table}', '{table}_history', '{table}__turns', '{table}__ranges', '{table}__runs',
        '{table}__keys');
