-- Note the ids of the messages that took keys: :taken is a JSON array of [key, id]. A key without one is free again: a
-- message of the queue has got it meanwhile.
-- Index: the primary key. Locks: the rows, which this transaction has.
-- In one transaction with the push: a crash takes none.
update json_table(:taken, '$[*]' columns (
    dedup_key varchar(255) character set utf8mb4 path '$[0]', id bigint path '$[1]'
)) as given
straight_join {keys} as taken on taken.dedup_key = cast(given.dedup_key as binary)
set taken.id = given.id;
delete taken
from json_table(:taken, '$[*]' columns (dedup_key varchar(255) character set utf8mb4 path '$[0]')) as given
straight_join {keys} as taken on taken.dedup_key = cast(given.dedup_key as binary)
where taken.id is null;
