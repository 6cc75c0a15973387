-- Delete what the write :write staged, published or not, and what any write left behind a day ago or earlier.
-- It reads the whole table, which holds the writes under way only. A crash leaves it for the next write.
delete from {staged}
where write_id = :write or staged_at < {now} - 86400000000;
