-- Deduplication keys.

-- name: find_keys
-- Index: the primary key. A locking read, because it must see the row that caused a duplicate-key error. Under
-- REPEATABLE READ a plain read may not see it.
-- Locks: the rows, shared; a claim does not change them. In a caller's transaction it runs without the lock: there, and
-- on a connection of our own. The id 0 is of a push that has not ended.
select convert(dedup_key using utf8mb4), id
from {live_keys} force index (primary) where dedup_key in :keys and id > 0 lock in share mode;

-- name: take_keys
-- In a caller's transaction at REPEATABLE READ, to read which messages have them would lock the gaps between keys:
-- there :seen is 1, after a look on a connection of our own.
-- Indexes: the primary keys. Locks: a key waits for another transaction that is taking it.
-- An assignment sees the values before it: taken_until comes last. The second statement reads what the first has taken.
-- In one transaction with the push: a crash takes none.
insert into {keys} (dedup_key, token, taken_until)
select
    cast(given.dedup_key as binary), :token, {now} + interval coalesce(given.seconds, {unique_for}) second
from json_table(:taken, '$[*]' columns (
    dedup_key varchar(255) character set utf8mb4 path '$[0]', seconds double path '$[1]'
)) as given
where :seen or not exists (
    select 1 from {live_keys} as there force index (primary)
    where there.dedup_key = cast(given.dedup_key as binary)
)
on duplicate key update
    id = if({keys}.taken_until <= {now}, null, {keys}.id),
    token = if({keys}.taken_until <= {now}, values(token), {keys}.token),
    taken_until = if({keys}.taken_until <= {now}, values(taken_until), {keys}.taken_until);
select convert(taken.dedup_key using utf8mb4)
from json_table(:taken, '$[*]' columns (dedup_key varchar(255) character set utf8mb4 path '$[0]')) as given
straight_join {keys} as taken force index (primary) on taken.dedup_key = cast(given.dedup_key as binary)
where taken.token = :token;

-- name: end_keys
-- :ended is a JSON array of [key, id], as a look without locks has found them. The messages stay as they are otherwise.
-- Indexes: the primary keys. Locks: first the messages, then their keys, as a finish does, so that neither deadlocks
-- with it; in the order of :ended, so that two such pushes do not. It waits for another transaction that finishes a
-- message.
-- In one transaction with the push: a crash changes nothing.
update {ended_keys}
straight_join {queue} as message force index (primary)
    on message.id = given.id and message.dedup_key = cast(given.dedup_key as binary)
set message.dedup_key = null;
delete {live_keys}
from {ended_keys}
straight_join {queue} as message force index (primary) on message.id = given.id and message.dedup_key is null
straight_join {live_keys} force index (primary)
    on {live_keys}.dedup_key = cast(given.dedup_key as binary) and {live_keys}.id = message.id;

-- name: name_keys
-- Indexes: the primary keys. Locks: the rows, which this transaction has.
-- In one transaction with the push: a crash takes none.
update json_table(:taken, '$[*]' columns (
    dedup_key varchar(255) character set utf8mb4 path '$[0]', id bigint path '$[1]', seconds double path '$[2]'
)) as given
straight_join {keys} as taken force index (primary) on taken.dedup_key = cast(given.dedup_key as binary)
left join {queue} as message force index (primary) on message.id = given.id
set taken.id = given.id,
    taken.taken_until = greatest(
        taken.taken_until,
        coalesce(message.pushed_at + interval coalesce(given.seconds, {unique_for}) second, taken.taken_until)
    );
delete taken
from json_table(:taken, '$[*]' columns (dedup_key varchar(255) character set utf8mb4 path '$[0]')) as given
straight_join {keys} as taken force index (primary) on taken.dedup_key = cast(given.dedup_key as binary)
where taken.id is null;

-- name: taken_keys
-- Index: the primary key. A locking read, as find_keys. Locks: the rows, shared.
select convert(taken.dedup_key using utf8mb4), taken.id
from json_table(:taken, '$[*]' columns (dedup_key varchar(255) character set utf8mb4 path '$[0]')) as given
straight_join {keys} as taken force index (primary) on taken.dedup_key = cast(given.dedup_key as binary)
where taken.taken_until > {now}
lock in share mode;

-- name: forget_keys
-- Delete up to :n keys whose time is over: find them, in @tq_ids, and delete them.
-- Index: {table}__keys_until. Locks: the rows; locked rows are skipped, as those that a push renews in its transaction.
-- In one transaction: a crash leaves all or nothing. As hexadecimal text, because JSON has no bytes.
-- name: forget_keys.lock
select hex(dedup_key) as id from {keys} force index ({table}__keys_until)
where taken_until <= {now} order by taken_until limit :n
for update skip locked;
-- name: forget_keys.change
delete {keys}
from json_table(:ids, '$[*]' columns (dedup_key varchar(2040) character set ascii path '$')) as given
straight_join {keys} force index (primary) on {keys}.dedup_key = unhex(given.dedup_key);
