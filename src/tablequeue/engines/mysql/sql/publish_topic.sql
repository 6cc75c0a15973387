-- Push to a log what the :attempts of the write :write staged, in the order of their parts, all at once.
-- Index: the primary key. Locks: none that another transaction waits for.
-- One transaction with writer_advance: a crash publishes none.
insert into {log} (payload, headers, producer, group_key, pushed_at)
select payload, headers, :producer, group_key, {now}
from {staged}
where write_id = :write and attempt in :attempts
order by part, place;
