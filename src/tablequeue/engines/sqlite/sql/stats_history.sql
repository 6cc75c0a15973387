-- How many finished messages are in the history: counted below 100,000, and from there on the span of their ids, which
-- has those in it that left otherwise, or are still in the queue. Indexes: {table}__finished, for 100,000 entries; the
-- primary key. Locks: none.
select case when counted < 100000 then counted else max(
    counted, (select max(id) from {history}) - (select min(id) from {history}) + 1
) end
from (select count(*) as counted from (select 1 from {history} where finished_at is not null limit 100000)) as counts;
