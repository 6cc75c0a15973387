-- Note the ids of the messages that took keys: :taken is a JSON array of [key, id]. A key without one is free again: a
-- message of the queue has got it meanwhile.
-- Index: the primary key. Locks: the rows, which this transaction has.
-- In one transaction with the push: a crash takes none.
update {keys}
set id = given.id
from (
    select json_extract(value, '$[0]') as dedup_key, json_extract(value, '$[1]') as id from json_each(:taken)
) as given
where {keys}.dedup_key = given.dedup_key;
delete from {keys}
where id is null and dedup_key in (select json_extract(value, '$[0]') from json_each(:taken));
