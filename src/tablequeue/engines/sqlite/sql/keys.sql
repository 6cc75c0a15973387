-- Deduplication keys.

-- name: find_keys
-- Index: {table}__key. Locks: none.
select dedup_key, id from {queue} where dedup_key in (select value from json_each(:keys)) and dedup_key is not null;

-- name: take_keys
-- Indexes: the primary key, {table}__key. Locks: a key waits for another transaction that is taking it.
-- In one transaction with the push: a crash takes none.
insert into {keys} (dedup_key, token, taken_until)
select
    json_extract(value, '$[0]'), :token,
    {now} + cast(coalesce(json_extract(value, '$[1]'), {unique_for}) * 1000000 as integer)
from json_each(:taken)
where not exists (select 1 from {queue} as there where there.dedup_key = json_extract(value, '$[0]'))
on conflict (dedup_key) do update
set token = excluded.token, id = null, taken_until = excluded.taken_until
where {keys}.taken_until <= {now}
returning dedup_key;

-- name: end_keys
-- The messages stay as they are otherwise. Indexes: {table}__key, the primary key of {keys}. Locks: the database. In
-- one transaction with the push: a crash changes nothing.
update {queue} set dedup_key = null
where dedup_key in (select json_extract(value, '$[0]') from json_each(:taken))
    and not exists (
        select 1 from {keys} as taken where taken.dedup_key = {queue}.dedup_key and taken.taken_until > {now}
    );

-- name: name_keys
-- Indexes: the primary keys. Locks: the database.
-- In one transaction with the push: a crash takes none.
update {keys}
set id = given.id,
    taken_until = max(taken_until, given.pushed_at + cast(coalesce(given.seconds, {unique_for}) * 1000000 as integer))
from (
    select
        message.id, message.pushed_at,
        json_extract(value, '$[0]') as dedup_key, json_extract(value, '$[2]') as seconds
    from json_each(:taken) cross join {queue} as message on message.id = json_extract(value, '$[1]')
) as given
where {keys}.dedup_key = given.dedup_key;
delete from {keys}
where id is null and dedup_key in (select json_extract(value, '$[0]') from json_each(:taken));

-- name: taken_keys
-- Index: the primary key. Locks: none.
select dedup_key, id from {keys}
where dedup_key in (select json_extract(value, '$[0]') from json_each(:taken)) and taken_until > {now};

-- name: forget_keys
-- Delete up to :n keys whose time is over.
-- Index: {table}__keys_until. Locks: the rows. A crash leaves all or nothing.
delete from {keys}
where dedup_key in (select dedup_key from {keys} where taken_until <= {now} order by taken_until limit :n)
returning dedup_key;
