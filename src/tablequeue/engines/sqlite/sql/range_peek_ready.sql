-- The first :n messages of the log with an id above :after that no range has, from the position of the subscription on.
-- Index: the primary keys. Locks: none.
select
    {log_columns with
        state = 'ready' as state
        attempts = 0 as attempts
        consumer = null as consumer
        first_popped_at = null as first_popped_at
        popped_at = null as popped_at
        finished_at = null as finished_at}
from {log}
where id > :after and id > (select last_offset from {ranges} order by id desc limit 1)
order by id
limit :n;
