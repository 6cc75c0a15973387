-- Mark the messages of :ids, which ranges under :token hold, as left. A range is finished when all have left it.
-- Index: {table}__token. Locks: the rows. A crash leaves them in progress until the lease expires.
update {ranges} as held
set finished_at = {now},
    left_ids = case
        when messages > coalesce(cardinality(left_ids), 0) + cardinality(of_range.ids)
            then coalesce(left_ids, '{}') || of_range.ids
    end,
    lease_until = case
        when messages > coalesce(cardinality(left_ids), 0) + cardinality(of_range.ids) then lease_until
    end
from (
    select range.id, array_agg(ids.id) as ids
    from {ranges} as range
    join unnest(cast(:ids as bigint[])) as ids (id) on true
    cross join lateral (
        select first_offset + ids.id - first_id as message_offset
        from {runs} where last_id >= ids.id order by last_id limit 1
    ) as run
    where token = cast(:token as uuid) and lease_until is not null
        and message_offset between range.first_offset and range.last_offset
    group by range.id
) as of_range
where held.id = of_range.id;
