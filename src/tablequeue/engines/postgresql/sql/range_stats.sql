-- The messages of a subscription that are in the log alone: not claimed yet, in progress, and finished; and the age of
-- the first one not claimed. What the last 100,000 ranges finished is counted. If there are more ranges, it is an
-- estimate: as many messages as there are offsets from the first range on.
-- Indexes: the primary keys, {table}__lease. Locks: none.
with bounds as (
    select
        greatest(
            (select last_offset + 1 from {ranges} order by id desc limit 1),
            (select min(first_offset) + 1 from {runs})
        ) as next,
        (select first_offset + last_id - first_id + 1 from {runs} order by first_offset desc limit 1) as ends,
        {last_id} as last_id
)
select
    greatest(ends - next, 0) + (select count(*) from {log} where id > bounds.last_id),
    (
        select coalesce(sum(messages - coalesce(cardinality(left_ids), 0)), 0)
        from {ranges} where lease_until is not null
    ),
    (
        select case
            when count(*) < 100000 then coalesce(sum(finished), 0)
            else greatest(sum(finished), max(last_offset) - (select first_offset from {ranges} order by id limit 1) + 1)
        end
        from (
            select last_offset, {finished_messages} as finished
            from {ranges} where messages > 0 order by id desc limit 100000
        ) as claimed
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
