-- As range_wait, in a packet, if range :id is the last one still: then what was found before still holds. Else
-- @tq_stays is false, or another session has just added a range, and that is a duplicate key.
-- Index: the primary key. Locks: the new row.
insert into {ranges} (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
select :id + 1, last_offset + 1, last_offset, 0, 0, '[]', utc_timestamp(6), utc_timestamp(6)
from (select id, last_offset from {ranges} order by id desc limit 1) as last
where id = :id;
set @tq_stays = @tq_stays and row_count();
