-- Mark messages of range :id as left: :left_ids are all :number of them that have left it. :apart more of them are set
-- apart now. The range is finished when all have left it.
-- Index: the primary key. Locks: the row. A crash leaves them in progress until the lease expires.
update {ranges}
set left_ids = :left_ids,
    apart = apart + :apart,
    finished_at = case when messages = :number then {now} end,
    lease_until = case when messages > :number then lease_until end
where id = :id;
