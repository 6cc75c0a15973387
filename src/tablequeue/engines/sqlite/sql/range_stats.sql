-- The messages of a subscription that are in the log alone: not claimed yet, in progress, and finished; and the age of
-- the first one not claimed. Indexes: the primary keys, {table}__lease. Locks: none.
select
    max(0, coalesce((select max(id) from {log}), 0) - next + 1),
    (
        select coalesce(sum(messages - json_array_length(coalesce(left_ids, '[]'))), 0)
        from {ranges} where lease_until is not null
    ),
    (
        select coalesce(
            sum(iif(lease_until is null, messages, json_array_length(coalesce(left_ids, '[]'))) - apart), 0
        )
        from {ranges}
    ),
    (select ({now} - pushed_at) / 1e6 from {log} where id >= next order by id limit 1)
from (
    select max(last_offset + 1, coalesce((select min(id) from {log}), 0)) as next
    from {ranges} order by id desc limit 1
);
