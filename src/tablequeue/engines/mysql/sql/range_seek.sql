-- Let the next claim begin at :start. This changes the row that range_wait has added. Locks: the row.
update {ranges}
set first_offset = :start, last_offset = :start - 1, popped_at = {now}, finished_at = {now}
where id = last_insert_id();
