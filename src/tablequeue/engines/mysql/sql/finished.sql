-- The last :n messages with ids from :low to :high that were finished from :since on and before :until, by id, the
-- highest first. Indexes: the primary key, {table}__finished. Locks: none.
select
    id, payload, headers, case when finished_at is null then 'in_progress' else 'finished' end as state, attempts,
    priority, convert(group_key using utf8mb4) as group_key, convert(dedup_key using utf8mb4) as dedup_key, producer,
    consumer, pushed_at, due_at, first_popped_at, popped_at, cast(null as datetime(6)) as lease_until, finished_at,
    errors
from {history}
where id between :low and :high and finished_at >= :since and finished_at < :until
order by id desc
limit :n;
