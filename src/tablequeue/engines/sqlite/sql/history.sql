-- The last :n finished messages with ids from :low to :high, highest id first. Index: the primary key. Locks: none.
select
    {history_columns}
from {history}
where id between :low and :high
order by id desc
limit :n;
