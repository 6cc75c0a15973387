-- Extend the leases on the ranges under :token that hold messages of :ids: they end :lease seconds from now.
-- Returns these messages.
-- Index: {table}__token. Locks: the database. A crash leaves all of them extended, or none.
update {ranges}
set lease_until = {now} + cast(:lease * 1000000 as integer)
where token = :token and lease_until is not null and exists (
    select 1 from json_each(:ids) as ids
    where ids.value between first_offset and last_offset
        and ids.value not in (select value from json_each(coalesce(left_ids, '[]')))
);
select ids.value, lease_until
from {ranges}
join json_each(:ids) as ids on ids.value between first_offset and last_offset
where token = :token and lease_until is not null
    and ids.value not in (select value from json_each(coalesce(left_ids, '[]')));
