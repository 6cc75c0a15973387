-- The last :n messages of a queue with ids from :low to :high, in whatever state, highest id first.
-- Index: the primary key. Locks: none.
select *
from (
    select
        {live_columns}
    from {queue}
    union all
    select
        {live_columns}
    from {packed}
    where first_id <= :high and last_id >= :low
) as message
where id between :low and :high
order by id desc
limit :n;
