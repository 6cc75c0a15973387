-- Push what the :attempts of the write :write staged, in the order of their parts, all at once. A message whose key is
-- taken, even by an earlier one of them, is left out; the caller counts the others.
-- Index: {table}__key. Locks: the database. One transaction with writer_advance: a crash publishes none.
insert into {queue} (
    payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at}
)
select
    payload, headers, :producer, coalesce(priority, 0), coalesce(group_key, :group), dedup_key, {now},
    coalesce(due_at, {default_due}), case when due_at > {now} then '{pushed_scheduled}' else '{pushed_ready}' end{until}
from {staged}
where write_id = :write and attempt in (select value from json_each(:attempts))
order by part, place
on conflict (dedup_key) where dedup_key is not null do nothing;
