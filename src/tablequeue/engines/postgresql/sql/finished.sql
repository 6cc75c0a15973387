-- The last :n messages with ids from :low to :high that were finished from :since on and before :until, by id, the
-- highest first. Indexes: the primary key, {table}__finished. Locks: none.
select
    {history_columns}
from {history}
where id between :low and :high and finished_at >= :since and finished_at < :until
order by id desc
limit :n;
