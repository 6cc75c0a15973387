-- One message of the queue, whatever its state. Index: the primary key. Locks: none.
select
    {live_columns}
from {queue}
where id = :id
union all
select
    {live_columns}
from {packed}
where :id between first_id and last_id and id = :id;
