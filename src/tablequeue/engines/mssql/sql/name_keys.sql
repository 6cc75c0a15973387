-- Note the ids of the messages that took keys: :taken is a JSON array of [key, id, seconds or null]. A key without an
-- id is free again: a message of the queue has got it meanwhile. The time of a key begins with the push, which came
-- after take_keys. That of a message which has moved here began before, so the later end counts.
-- Indexes: the primary keys. Locks: the rows, which this transaction has.
-- In one transaction with the push: a crash takes none.
declare @taken nvarchar(max) = cast(:taken as nvarchar(max));
update taken
set id = given.id,
    taken_until = case when pushed.until > taken.taken_until then pushed.until else taken.taken_until end
from openjson(@taken) as entry
cross apply (
    select
        convert(varbinary(1020), convert(nvarchar(510), json_value(entry.value, '$[0]'))) as dedup_key,
        cast(json_value(entry.value, '$[1]') as bigint) as id,
        coalesce(cast(json_value(entry.value, '$[2]') as float), {key_for}) as seconds
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
