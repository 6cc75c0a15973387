-- Delete what the write :write has staged and not published, and what any write left behind a day ago or earlier.
-- Indexes: the primary keys. Locks: the rows. A task that copies just now is left out, and deleted a day later.
-- A crash leaves it for the next write.
with left_behind as materialized (
    select first_id from {parts}
    where write_id = :write or staged_at < {now} - interval '1 day'
    for update skip locked
), gone as (
    delete from {parts} where first_id in (select first_id from left_behind)
    returning first_id, last_id
)
delete from {log} using gone where id between gone.first_id and gone.last_id;
