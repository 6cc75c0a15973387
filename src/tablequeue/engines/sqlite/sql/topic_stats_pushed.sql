-- Count the messages pushed less than :age seconds ago by moment, among the :n highest ids of the log. Returns the
-- producer, how many seconds ago, and the number of messages.
-- Index: the primary key, backwards, for :n rows: no index has the time of a push, but ids rise with it. Locks: none.
select producer, ({now} - pushed_at) / 1e6 as ago, count(*) as pushed
from (select producer, pushed_at from {log} order by id desc limit :n) as newest
where pushed_at > {now} - cast(:age * 1000000 as integer) and pushed_at <= {now}
group by producer, pushed_at;
