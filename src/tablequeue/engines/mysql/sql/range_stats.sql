-- The messages of a subscription that are in the log alone: not claimed yet, in progress, and finished; and the age of
-- the first one not claimed. Indexes: the primary keys, {table}__lease, that of the runs by last_id. Locks: none.
select
    greatest(ends - next, 0)
        + (select count(*) from {log} where id > (select last_id from {runs} order by last_id desc limit 1)),
    (
        select cast(coalesce(sum(messages - coalesce(json_length(left_ids), 0)), 0) as signed)
        from {ranges} force index ({table}__lease) where lease_until is not null
    ),
    (
        select cast(coalesce(sum(
            case when lease_until is null then messages else coalesce(json_length(left_ids), 0) end - apart
        ), 0) as signed)
        from {ranges}
    ),
    (
        select timestampdiff(microsecond, pushed_at, {now}) / 1e6
        from {log}
        where id = coalesce(
            (
                select first_id + bounds.next - first_offset from {runs}
                where first_offset <= bounds.next and bounds.next < bounds.ends order by first_offset desc limit 1
            ),
            (select min(id) from {log} where id > (select last_id from {runs} order by last_id desc limit 1))
        )
    )
from (
    select
        greatest(
            (select last_offset + 1 from {ranges} order by id desc limit 1),
            (select first_offset + 1 from {runs} order by first_offset limit 1)
        ) as next,
        (select first_offset + last_id - first_id + 1 from {runs} order by first_offset desc limit 1) as ends
) as bounds;
