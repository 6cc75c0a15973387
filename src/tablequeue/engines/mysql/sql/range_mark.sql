-- Mark messages of range :id as left: :left_ids are all :number of them that have left it, :apart_ids those of them
-- that were set apart. The range is finished when all have left it.
-- Index: the primary key. Locks: the row. A crash leaves them in progress until the lease expires.
update {ranges}
set left_ids = case when messages > :number then :left_ids end,
    apart_ids = :apart_ids,
    finished_at = {now},
    lease_until = case when messages > :number then lease_until end
where id = :id;
