-- One message of the queue, whatever its state.
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads,
-- and it waits for transactions that change a row.
declare @id bigint = :id;
select
    {live_columns}
from {queue}
where id = @id;
