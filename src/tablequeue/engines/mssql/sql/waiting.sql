-- Lock up to :n messages with ids above :after, up to :high, that no consumer holds, in the order of their ids. One
-- statement for all states: a message whose state changes meanwhile is not passed over.
-- Index: the primary key. Locks: the rows; it waits for claims and takes under way. A crash leaves nothing.
declare @n bigint = :n;
declare @after bigint = :after;
declare @high bigint = :high;
select top (@n) id, convert(nvarchar(510), group_key) as group_key, convert(nvarchar(510), dedup_key) as dedup_key
from {queue} with (rowlock, updlock, readcommittedlock, forceseek)
where id > @after and id <= @high and state <> 'in_progress'
order by id;
