-- Return those of the keys that are taken, with the ids of the messages that took them. :taken is a JSON array of
-- arrays with a key.
-- Index: the primary key. A locking read, as find_keys. Locks: the rows, shared.
select convert(taken.dedup_key using utf8mb4), taken.id
from json_table(:taken, '$[*]' columns (dedup_key varchar(255) character set utf8mb4 path '$[0]')) as given
straight_join {keys} as taken on taken.dedup_key = cast(given.dedup_key as binary)
where taken.taken_until > {now}
lock in share mode;
