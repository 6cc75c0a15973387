-- Extend the lease on the range under :token that holds the message of :ids: it ends :lease seconds from now.
-- Indexes: {table}__token, the index of the runs by last_id. Locks: the row.
update {ranges} as held
set lease_until = {now} + cast(:lease as float8) * interval '1 second'
from unnest(cast(:ids as bigint[])) as ids (id)
cross join lateral (
    select first_id, first_offset + ids.id - first_id as message_offset
    from {runs} where last_id >= ids.id order by last_id limit 1
) as run
where token = cast(:token as uuid) and lease_until is not null and run.first_id <= ids.id
    and message_offset between held.first_offset and held.last_offset
    and (left_ids is null or ids.id <> all(left_ids))
returning lease_until;
