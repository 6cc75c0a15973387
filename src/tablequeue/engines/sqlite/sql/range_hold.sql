-- The messages of :ids that ranges under :token hold: those that have not left them.
-- Index: {table}__token. Locks: the database.
select ids.value
from {ranges} as ranges
join json_each(:ids) as ids on ids.value between first_offset and last_offset
where token = :token and lease_until is not null
    and ids.value not in (select value from json_each(coalesce(left_ids, '[]')));
