-- Deduplication keys.

-- name: find_keys
-- Index: {table}__key. Locks: none.
select dedup_key, id from {queue} where dedup_key = any(cast(:keys as text[]));

-- name: take_keys
-- Indexes: the primary key, {table}__key. Locks: a key waits for another transaction that is taking it.
-- In one transaction with the push: a crash takes none.
insert into {keys} as taken (dedup_key, token, taken_until)
select
    given ->> 0, cast(:token as uuid),
    {now} + coalesce(cast(given ->> 1 as float8), {unique_for}) * interval '1 second'
from jsonb_array_elements(cast(:taken as jsonb)) as given
where not exists (select from {queue} as there where there.dedup_key = given ->> 0)
order by given ->> 0
on conflict (dedup_key) do update
set token = excluded.token, id = null, taken_until = excluded.taken_until
where taken.taken_until <= {now}
returning dedup_key;

-- name: end_keys
-- The messages stay as they are otherwise. Indexes: {table}__key, the primary key of {keys}.
-- Locks: the messages, in the order of their keys, so that two such pushes do not deadlock. It waits for another
-- transaction that takes a key, or that finishes its message. In one transaction with the push: a crash changes
-- nothing.
with over as (
    select id from {queue} as message
    where dedup_key = any(array(select given ->> 0 from jsonb_array_elements(cast(:taken as jsonb)) as given))
        and not exists (
            select from {keys} as taken where taken.dedup_key = message.dedup_key and taken.taken_until > {now}
        )
    order by dedup_key
    for update
)
update {queue} as message set dedup_key = null from over where message.id = over.id;

-- name: name_keys
-- Indexes: the primary keys. Locks: the rows, which this transaction has.
-- In one transaction with the push: a crash takes none.
update {keys} as taken
set id = message.id,
    taken_until = greatest(
        taken.taken_until,
        message.pushed_at + coalesce(cast(given ->> 2 as float8), {unique_for}) * interval '1 second'
    )
from jsonb_array_elements(cast(:taken as jsonb)) as given
inner join {queue} as message on message.id = cast(given ->> 1 as bigint)
where taken.dedup_key = given ->> 0;
delete from {keys} as taken
using jsonb_array_elements(cast(:taken as jsonb)) as given
where taken.dedup_key = given ->> 0 and taken.id is null;

-- name: taken_keys
-- Index: the primary key. Locks: none.
select dedup_key, id from {keys}
where dedup_key in (select given ->> 0 from jsonb_array_elements(cast(:taken as jsonb)) as given)
    and taken_until > {now};

-- name: forget_keys
-- Delete up to :n keys whose time is over.
-- Index: {table}__keys_until. Locks: the rows. A crash leaves all or nothing.
delete from {keys}
where dedup_key = any(array(
    select dedup_key from {keys} where taken_until <= {now} order by taken_until limit :n for update skip locked
))
returning dedup_key;
