-- Messages lose those of the keys whose time is over: :taken is a JSON array of [key, ...]. A push that takes them can
-- follow. The messages stay as they are otherwise.
-- Indexes: {table}__key, the primary key of {keys}. Locks: the messages, in the order of :taken, so that two such
-- pushes do not deadlock. It waits for another transaction that takes a key, or that finishes its message.
-- In one transaction with the push: a crash changes nothing.
update json_table(:taken, '$[*]' columns (dedup_key varchar(255) character set utf8mb4 path '$[0]')) as given
straight_join {queue} as message force index ({table}__key) on message.dedup_key = cast(given.dedup_key as binary)
left join {keys} as taken on taken.dedup_key = message.dedup_key and taken.taken_until > {now}
set message.dedup_key = null
where taken.dedup_key is null;
