-- Return those of the JSON array :keys that messages of the queue have, with their ids. Index: {table}__key.
-- Locks: none under READ_COMMITTED_SNAPSHOT; without that option it waits for transactions that push one of them.
declare @keys nvarchar(max) = cast(:keys as nvarchar(max));
select distinct convert(nvarchar(510), message.dedup_key) as dedup_key, message.id
from openjson(@keys) as given
inner join {queue} as message
    on message.dedup_key = convert(varbinary(1020), convert(nvarchar(510), given.value))
    and message.dedup_key is not null;
