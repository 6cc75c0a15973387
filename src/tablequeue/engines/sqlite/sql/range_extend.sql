-- Extend the lease on the range under :token that holds the message of :ids: it ends :lease seconds from now.
-- Index: {table}__token. Locks: the database.
update {ranges}
set lease_until = {now} + cast(:lease * 1000000 as integer)
where token = :token and lease_until is not null and exists (
    select 1 from json_each(:ids) as ids
    where ids.value between first_offset and last_offset
        and ids.value not in (select value from json_each(coalesce(left_ids, '[]')))
)
returning lease_until;
