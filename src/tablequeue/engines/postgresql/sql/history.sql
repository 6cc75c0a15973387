-- The last :n finished messages with ids from :low to :high, highest id first. Index: the primary key. Locks: none.
select
    id, payload, headers, 'finished' as state, attempts, producer, consumer, pushed_at, due_at, first_popped_at,
    popped_at, cast(null as timestamptz) as lease_until, finished_at, errors
from {history}
where id between :low and :high
order by id desc
limit :n;
