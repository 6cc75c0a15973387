-- One message of the queue, whatever its state. Index: the primary key. Locks: none under
-- READ_COMMITTED_SNAPSHOT; else shared ones while it reads, and it waits for who is changing a row.
declare @id bigint = :id;
select
    {live_columns}
from {queue}
where id = @id;
