-- One message of the queue, whatever its state. Index: the primary key. Locks: none.
select
    {live_columns}
from {queue}
where id = :id;
