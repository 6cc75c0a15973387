-- Count the messages that the :attempts of the write :write staged. It reads the whole table. Locks: none.
select coalesce(sum(cardinality(payloads)), 0)
from {staged}
where write_id = :write and attempt = any(:attempts);
