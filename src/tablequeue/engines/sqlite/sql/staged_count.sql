-- Count the messages that the :attempts of the write :write staged. It reads the whole table. Locks: none.
select count(*)
from {staged}
where write_id = :write and attempt in (select value from json_each(:attempts));
