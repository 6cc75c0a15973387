-- When the message was pushed that has the highest id up to the offset :start. These times never go back, so that one
-- can search by them, though a message that was committed late comes after younger ones.
-- Indexes: the primary keys. Locks: as topic_bounds.
declare @start bigint = :start;
select message.pushed_at
from (
    select
        max(iif(last_id < first_id + @start - first_offset, last_id, first_id + @start - first_offset)) as id
    from {runs}
    where first_offset <= @start
) as run
inner join {log} as message on message.id = run.id;
