-- Note the ids of the messages that took keys: :taken is a JSON array of [key, id]. A key without one is free again: a
-- message of the queue has got it meanwhile.
-- Index: the primary key. Locks: the rows, which this transaction has.
-- In one transaction with the push: a crash takes none.
declare @taken nvarchar(max) = cast(:taken as nvarchar(max));
update taken
set id = cast(json_value(entry.value, '$[1]') as bigint)
from openjson(@taken) as entry
cross apply (
    select convert(varbinary(1020), convert(nvarchar(510), json_value(entry.value, '$[0]'))) as dedup_key
) as given
inner join {keys} as taken with (rowlock) on taken.dedup_key = given.dedup_key;
delete from taken
from openjson(@taken) as entry
cross apply (
    select convert(varbinary(1020), convert(nvarchar(510), json_value(entry.value, '$[0]'))) as dedup_key
) as given
inner join {keys} as taken with (rowlock) on taken.dedup_key = given.dedup_key
where taken.id is null;
