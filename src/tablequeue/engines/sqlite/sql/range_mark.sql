-- Mark the messages of :ids, which ranges under :token hold, as left. A range is finished when all have left it.
-- Index: {table}__token. Locks: the database. A crash leaves them in progress until the lease expires.
update {ranges}
set finished_at = {now}, left_ids = (
    select json_group_array(value) from (
        select value from json_each(coalesce(left_ids, '[]'))
        union all
        select value from json_each(:ids) where value between first_offset and last_offset
    )
)
where token = :token and lease_until is not null
    and exists (select 1 from json_each(:ids) where value between first_offset and last_offset);
update {ranges}
set left_ids = null, lease_until = null
where token = :token and lease_until is not null and messages = json_array_length(left_ids);
