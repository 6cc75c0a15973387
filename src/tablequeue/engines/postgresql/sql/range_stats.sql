-- The messages of a subscription that are in the log alone: not claimed yet, in progress, and finished; and the age of
-- the first one not claimed. Indexes: the primary keys, {table}__lease. Locks: none.
with bounds as (
    select
        greatest(
            (select last_offset + 1 from {ranges} order by id desc limit 1),
            (select min(first_offset) + 1 from {runs})
        ) as next,
        (select first_offset + last_id - first_id + 1 from {runs} order by first_offset desc limit 1) as ends,
        (select last_id from {runs} order by last_id desc limit 1) as last_id
)
select
    greatest(ends - next, 0) + (select count(*) from {log} where id > bounds.last_id),
    (
        select coalesce(sum(messages - coalesce(cardinality(left_ids), 0)), 0)
        from {ranges} where lease_until is not null
    ),
    (
        select coalesce(
            sum(case when lease_until is null then messages else coalesce(cardinality(left_ids), 0) end - apart), 0
        )
        from {ranges}
    ),
    (
        select cast(extract(epoch from {now} - pushed_at) as float8)
        from {log}
        where id = coalesce(
            (
                select first_id + bounds.next - first_offset from {runs}
                where first_offset <= bounds.next and bounds.next < bounds.ends order by first_offset desc limit 1
            ),
            (select min(id) from {log} where id > bounds.last_id)
        )
    )
from bounds;
