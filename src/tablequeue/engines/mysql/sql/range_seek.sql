-- Let the next claim begin at :start. The row has no messages. If another session has claimed a range meanwhile, that
-- is a duplicate key, and the insert is repeated. Locks: the new row.
insert into {ranges} (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
select id + 1, :start, :start - 1, 0, 0, '[]', {now}, {now} from {ranges} order by id desc limit 1;
