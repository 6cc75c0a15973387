-- When the message at offset :start was pushed. Indexes: the primary keys. Locks: none.
select pushed_at
from (
    select first_id + :start - first_offset as id
    from {runs} where first_offset <= :start order by first_offset desc limit 1
) as place
straight_join {log} as log force index (primary) on log.id = place.id;
