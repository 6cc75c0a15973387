-- Note the ids of the messages that took keys: :taken is a JSON array of [key, id]. A key without one is free again: a
-- message of the queue has got it meanwhile. The time of a key begins with the push, which came after take_keys.
-- Index: the primary key. Locks: the rows, which this transaction has.
-- In one transaction with the push: a crash takes none.
update json_table(:taken, '$[*]' columns (
    dedup_key varchar(255) character set utf8mb4 path '$[0]', id bigint path '$[1]'
)) as given
straight_join {keys} as taken on taken.dedup_key = cast(given.dedup_key as binary)
left join {queue} as message on message.id = given.id
set taken.id = given.id,
    taken.taken_until = taken.taken_until + interval greatest(
        0, coalesce(timestampdiff(microsecond, cast(@tq_taken_at as datetime(6)), message.pushed_at), 0)
    ) microsecond;
delete taken
from json_table(:taken, '$[*]' columns (dedup_key varchar(255) character set utf8mb4 path '$[0]')) as given
straight_join {keys} as taken on taken.dedup_key = cast(given.dedup_key as binary)
where taken.id is null;
