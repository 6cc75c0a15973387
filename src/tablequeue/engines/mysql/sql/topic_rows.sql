-- The messages at the offsets from :start on and before :end, mostly in their order.
-- The first statement finds the runs. Each of them repeats the condition of the second one.
-- Indexes: the primary keys. Locks: none.
(
    select first_offset, first_id, last_id
    from {runs} where first_offset <= :start order by first_offset desc limit 1
)
union all
(
    select first_offset, first_id, last_id
    from {runs} where first_offset > :start and first_offset < :end order by first_offset
);
select id, payload, headers, convert(group_key using utf8mb4) as group_key, producer, pushed_at
from {log} force index (primary)
where id between :low and :high;
