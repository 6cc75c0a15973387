-- When the message at offset :start was pushed. Indexes: the primary keys. Locks: as topic_bounds.
declare @start bigint = :start;
select message.pushed_at
from (
    select top (1) first_id + @start - first_offset as id
    from {runs}
    where first_offset <= @start
    order by first_offset desc
) as run
inner join {log} as message on message.id = run.id;
