-- The messages of a subscription that are in the log alone: not claimed yet, in progress, and finished; and the age of
-- the first one not claimed. What the last 100,000 ranges finished is counted. If there are more ranges, it is an
-- estimate: as many messages as there are offsets from the first range on.
-- Indexes: the primary keys, {table}__lease. Locks: none.
select
    max(0, coalesce((select max(id) from {log}), 0) - next + 1),
    (
        select coalesce(sum(messages - json_array_length(coalesce(left_ids, '[]'))), 0)
        from {ranges} where lease_until is not null
    ),
    (
        select case
            when count(*) < 100000 then coalesce(sum(finished), 0)
            else max(sum(finished), max(last_offset) - (select first_offset from {ranges} order by id limit 1) + 1)
        end
        from (
            select last_offset, {finished_messages} as finished
            from {ranges} where messages > 0 order by id desc limit 100000
        )
    ),
    (select ({now} - pushed_at) / 1e6 from {log} where id >= next order by id limit 1)
from (
    select max(last_offset + 1, coalesce((select min(id) from {log}), 0)) as next
    from {ranges} order by id desc limit 1
);
