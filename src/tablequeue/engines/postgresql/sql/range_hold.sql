-- Lock the ranges under :token. Return the messages of :ids that they hold: those that have not left them.
-- Indexes: {table}__token, the index of the runs by last_id. Locks: the rows.
with held as materialized (
    select first_offset, last_offset, left_ids
    from {ranges}
    where token = cast(:token as uuid) and lease_until is not null
    for update
)
select ids.id
from unnest(cast(:ids as bigint[])) as ids (id)
cross join lateral (
    select first_id, first_offset + ids.id - first_id as message_offset
    from {runs} where last_id >= ids.id order by last_id limit 1
) as run
join held on message_offset between held.first_offset and held.last_offset
where run.first_id <= ids.id and (left_ids is null or ids.id <> all(left_ids));
