-- Lock up to :n messages with ids above :after, up to :high, that no consumer holds, in the order of their ids. One
-- statement for all states: a message whose state changes meanwhile is not passed over.
-- Index: the primary key. Locks: the rows; it waits for claims and takes under way. A crash leaves nothing.
select id, convert(group_key using utf8mb4), convert(dedup_key using utf8mb4)
from {queue} force index (primary)
where id > :after and id <= :high and state <> 'in_progress'
order by id
limit :n
for update;
