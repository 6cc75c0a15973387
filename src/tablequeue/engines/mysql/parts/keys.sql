-- Keys of live messages.

-- name: new_keys
-- The token of messages that this transaction inserts from another table, until they have taken their keys.
concat('new of ', connection_id())

-- name: take_new_keys
-- These messages take their keys. A duplicate-key error if another message has one.
insert into {live_keys} (dedup_key, id)
select dedup_key, id from {queue} force index (primary)
where id >= last_insert_id() and token = {new_keys} and dedup_key is not null;
update {queue} force index (primary) set token = null where id >= last_insert_id() and token = {new_keys};

-- name: ended_keys
-- The keys that messages lose, with their ids.
json_table(:ended, '$[*]' columns (
    dedup_key varchar(255) character set utf8mb4 path '$[0]', id bigint path '$[1]'
)) as given
