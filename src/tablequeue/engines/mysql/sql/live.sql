-- The last :n messages of a queue with ids from :low to :high, in whatever state, highest id first.
-- Index: the primary key. Locks: none.
select
    {live_columns}
from {queue}
where id between :low and :high
order by id desc
limit :n;
