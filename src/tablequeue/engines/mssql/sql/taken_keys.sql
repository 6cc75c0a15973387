-- Return those of the keys that are taken, with the ids of the messages that took them. :taken is a JSON array of
-- arrays with a key.
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT; else shared ones.
declare @taken nvarchar(max) = cast(:taken as nvarchar(max));
declare @now datetime2(6) = {now};
select convert(nvarchar(510), taken.dedup_key) as dedup_key, taken.id
from openjson(@taken) as entry
cross apply (
    select convert(varbinary(1020), convert(nvarchar(510), json_value(entry.value, '$[0]'))) as dedup_key
) as given
inner join {keys} as taken on taken.dedup_key = given.dedup_key
where taken.taken_until > @now;
