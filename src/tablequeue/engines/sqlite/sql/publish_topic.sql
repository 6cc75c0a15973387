-- Push to a log what the :attempts of the write :write staged, in the order of their parts, all at once.
-- Locks: the database. One transaction with writer_advance: a crash publishes none.
insert into {log} (pushed_at, producer, group_key, headers, payload)
select {now}, :producer, group_key, headers, payload
from {staged}
where write_id = :write and attempt in (select value from json_each(:attempts))
order by part, place;
