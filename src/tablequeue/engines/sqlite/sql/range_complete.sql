-- Complete the range that is held under :token: all :number messages of it, which have this :sum of ids.
-- Index: {table}__token. Locks: the database. A crash leaves it in progress until its lease expires.
update {ranges}
set finished_at = {now}, lease_until = null
where token = :token and lease_until is not null and messages = :number and ids_sum = :sum and left_ids is null
returning id;
