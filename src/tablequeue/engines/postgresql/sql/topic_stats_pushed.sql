-- Count the messages pushed less than :age seconds ago by moment, among the :n highest ids of the log. Returns the
-- producer, how many seconds ago, and the number of messages. Those of bulk writes under way are not counted.
-- Index: the primary key, backwards, for :n rows: no index has the time of a push, but ids rise with it. Locks: none.
select producer, cast(extract(epoch from {now} - pushed_at) as float8) as ago, count(*) as pushed
from (select id, producer, pushed_at from {log} order by id desc limit :n) as newest
where not exists (select from {parts} where id between first_id and last_id)
    and pushed_at > {now} - cast(:age as float8) * interval '1 second' and pushed_at <= {now}
group by producer, pushed_at;
