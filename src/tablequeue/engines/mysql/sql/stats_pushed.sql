-- Of the :n messages with the highest ids, live or not, those pushed less than :age seconds ago, summed up by moment:
-- the producer, how many seconds ago, and the number of messages.
-- Index: the primary keys, backwards, for :n rows each: no index has the time of a push, but ids rise with it.
-- Locks: none.
select producer, timestampdiff(microsecond, pushed_at, {now}) / 1e6 as ago, count(*) as pushed
from (
    select producer, pushed_at
    from (
        (select id, producer, pushed_at from {queue} order by id desc limit :n)
        union all
        (select id, producer, pushed_at from {history} order by id desc limit :n)
    ) as pushed
    order by id desc
    limit :n
) as newest
where pushed_at > {now} - interval :age second and pushed_at <= {now}
group by producer, pushed_at;
