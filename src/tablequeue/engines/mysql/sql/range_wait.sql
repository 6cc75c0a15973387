-- Let no claim of a subscription run until the transaction ends: add a range without messages at the position, whose id
-- the next claim would have. If another session has claimed meanwhile, that is a duplicate key, and it is repeated.
-- Index: the primary key. Locks: the new row.
insert into {ranges} (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
select last_insert_id(id + 1), last_offset + 1, last_offset, 0, 0, '[]', utc_timestamp(6), utc_timestamp(6)
from (select id, last_offset from {ranges} order by id desc limit 1) as last;
