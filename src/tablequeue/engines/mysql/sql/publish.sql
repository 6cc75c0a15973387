-- Push what the :attempts of the write :write staged, in the order of their parts, all at once. A message whose key is
-- taken, even by an earlier one of them, is left out; the caller counts the others.
-- If another transaction pushes one of the keys at the same moment, the unique index refuses it, and it is repeated.
-- Indexes: the primary key, {table}__key. Locks: the rows. One transaction with writer_advance: a crash publishes none.
insert into {queue} (
    payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at}
)
select
    payload, headers, :producer, coalesce(priority, 0), coalesce(group_key, :group), dedup_key, {now},
    coalesce(due_at, {default_due}), case when due_at > {now} then '{pushed_scheduled}' else '{pushed_ready}' end{until}
from (
    select
        staged.*,
        row_number() over (
            partition by dedup_key, case when dedup_key is null then concat(attempt, ' ', place) end
            order by part, place
        ) as turn
    from {staged} as staged
    where write_id = :write and attempt in :attempts
) as batch
where turn = 1
    and (
        dedup_key is null
        or not exists (select 1 from {queue} as there where there.dedup_key = batch.dedup_key)
    )
order by part, place;
