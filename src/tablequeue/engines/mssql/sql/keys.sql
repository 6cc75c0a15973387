-- Deduplication keys.

-- name: find_keys
-- Index: {table}__key.
-- Locks: none under READ_COMMITTED_SNAPSHOT; without that option it waits for transactions that push one of them.
select distinct convert(nvarchar(510), message.dedup_key) as dedup_key, message.id
from openjson(@keys) as given
inner join {queue} as message
    on message.dedup_key = convert(varbinary(1020), convert(nvarchar(510), given.value))
    and message.dedup_key is not null;

-- name: take_keys
-- Indexes: the primary key, {table}__key. Locks: a key waits for another transaction that is taking it.
-- Keys whose time is over are deleted first. If another transaction takes one between the look (READCOMMITTEDLOCK, as
-- in push) and the insert, the primary key refuses the insert (error 2627), and the transaction is tried again.
-- In one transaction with the push: a crash takes none.
declare @free table (dedup_key varbinary(1020) not null primary key, seconds float not null);
insert into @free (dedup_key, seconds)
select given.dedup_key, coalesce(cast(json_value(entry.value, '$[1]') as float), {unique_for})
from openjson(@taken) as entry
cross apply (
    select convert(varbinary(1020), convert(nvarchar(510), json_value(entry.value, '$[0]'))) as dedup_key
) as given
where not exists (
    select 1 from {queue} as there with (readcommittedlock)
    where there.dedup_key = given.dedup_key and there.dedup_key is not null
);
delete from taken
from {keys} as taken with (rowlock)
where taken.dedup_key in (select dedup_key from @free) and taken.taken_until <= @now;
insert into {keys} (dedup_key, token, taken_until)
output convert(nvarchar(510), inserted.dedup_key) as dedup_key
select free.dedup_key, @token, {free_until}
from @free as free
where not exists (
    select 1 from {keys} as there with (readcommittedlock) where there.dedup_key = free.dedup_key
);

-- name: end_keys
-- Returns the ids of the messages, which stay as they are otherwise. Indexes: {table}__key, the primary key of {keys}.
-- Locks: the messages. It waits for another transaction that takes a key, or that finishes its message;
-- READCOMMITTEDLOCK: the look at {keys} does so under READ_COMMITTED_SNAPSHOT too. In one transaction with the push: a
-- crash changes nothing.
update message
set dedup_key = null
output inserted.id
from openjson(@taken) as entry
cross apply (
    select convert(varbinary(1020), convert(nvarchar(510), json_value(entry.value, '$[0]'))) as dedup_key
) as given
inner join {queue} as message with (rowlock)
    on message.dedup_key = given.dedup_key and message.dedup_key is not null
where not exists (
    select 1 from {keys} as there with (readcommittedlock)
    where there.dedup_key = given.dedup_key and there.taken_until > @now
);

-- name: name_keys
-- Indexes: the primary keys. Locks: the rows, which this transaction has.
-- In one transaction with the push: a crash takes none.
update taken
set id = given.id,
    taken_until = case when pushed.until > taken.taken_until then pushed.until else taken.taken_until end
from openjson(@taken) as entry
cross apply (
    select
        convert(varbinary(1020), convert(nvarchar(510), json_value(entry.value, '$[0]'))) as dedup_key,
        cast(json_value(entry.value, '$[1]') as bigint) as id,
        coalesce(cast(json_value(entry.value, '$[2]') as float), {unique_for}) as seconds
) as given
inner join {keys} as taken with (rowlock) on taken.dedup_key = given.dedup_key
left join {queue} as message with (forceseek) on message.id = given.id
cross apply (
    select {pushed_until} as until
) as pushed;
delete from taken
from openjson(@taken) as entry
cross apply (
    select convert(varbinary(1020), convert(nvarchar(510), json_value(entry.value, '$[0]'))) as dedup_key
) as given
inner join {keys} as taken with (rowlock) on taken.dedup_key = given.dedup_key
where taken.id is null;

-- name: taken_keys
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT; else shared ones.
select convert(nvarchar(510), taken.dedup_key) as dedup_key, taken.id
from openjson(@taken) as entry
cross apply (
    select convert(varbinary(1020), convert(nvarchar(510), json_value(entry.value, '$[0]'))) as dedup_key
) as given
inner join {keys} as taken on taken.dedup_key = given.dedup_key
where taken.taken_until > @now;

-- name: forget_keys
-- Delete up to :n keys whose time is over.
-- Index: {table}__keys_until. Locks: the rows. A crash leaves all or nothing.
with over_keys as (
    select top (@n) dedup_key, taken_until
    from {keys} with (index ({table}__keys_until), rowlock, readpast, updlock, readcommittedlock)
    where taken_until <= @now
    order by taken_until
)
delete from over_keys
output convert(nvarchar(510), deleted.dedup_key) as dedup_key;
