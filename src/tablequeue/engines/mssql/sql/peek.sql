-- The first :n messages that are {state} with an id above :after, claiming none. Index: {table}__{state}.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads, and it waits for
-- transactions that change a row.
declare @n bigint = :n;
declare @after bigint = :after;
select top (@n)
    {live_columns}
from {queue}
where state = '{state}' and id > @after
order by id;
