-- Of the :n messages with the highest ids, live or not, those pushed less than :age seconds ago, summed up by moment:
-- the producer, how many seconds ago, and the number of messages.
-- Index: the primary keys, backwards, for :n rows each: no index has the time of a push, but ids rise with it.
-- Locks: none.
select producer, cast(extract(epoch from {now} - pushed_at) as float8) as ago, count(*) as pushed
from (
    select producer, pushed_at
    from (
        (select id, producer, pushed_at from {queue} order by id desc limit :n)
        union all
        (select id, producer, pushed_at from {packed} order by id desc limit :n)
        union all
        (select id, producer, pushed_at from {history} order by id desc limit :n)
    ) as pushed
    order by id desc
    limit :n
) as newest
where pushed_at > {now} - cast(:age as float8) * interval '1 second' and pushed_at <= {now}
group by producer, pushed_at;
