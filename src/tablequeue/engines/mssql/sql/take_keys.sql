-- Take those of the keys that are free, each for its seconds: :taken is a JSON array of [key, seconds or null], sorted.
-- Return them. A key is free if no message of the queue has it, and the time of the last message that had it is over.
-- Indexes: the primary key, {table}__key. Locks: a key waits for another transaction that is taking it.
-- Keys whose time is over are deleted first. If another transaction takes one between the look (READCOMMITTEDLOCK, as
-- in push) and the insert, the primary key refuses the insert (error 2627), and the transaction is tried again.
-- In one transaction with the push: a crash takes none.
declare @taken nvarchar(max) = cast(:taken as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @now datetime2(6) = {now};
declare @free table (dedup_key varbinary(1020) not null primary key, seconds float not null);
insert into @free (dedup_key, seconds)
select given.dedup_key, coalesce(cast(json_value(entry.value, '$[1]') as float), {key_for})
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
