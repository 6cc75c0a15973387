-- Messages lose those of the keys whose time is over: :taken is a JSON array of [key, ...]. A push that takes them can
-- follow. Returns the ids of the messages, which stay as they are otherwise.
-- Indexes: {table}__key, the primary key of {keys}. Locks: the messages. It waits for another transaction that takes a
-- key, or that finishes its message; READCOMMITTEDLOCK: the look at {keys} does so under READ_COMMITTED_SNAPSHOT too.
-- In one transaction with the push: a crash changes nothing.
declare @taken nvarchar(max) = cast(:taken as nvarchar(max));
declare @now datetime2(6) = {now};
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
