-- Extend the leases on the ranges under :token that hold messages of :ids: they end :lease seconds from now.
-- Returns these messages.
-- Indexes: {table}__token, the index of the runs by last_id. Locks: the rows. A crash leaves all extended, or none.
with held as materialized (
    select id, first_offset, last_offset, left_ids
    from {ranges}
    where token = cast(:token as uuid) and lease_until is not null
    for update
), found as materialized (
    select ids.id, held.id as range_id
    from unnest(cast(:ids as bigint[])) as ids (id)
    cross join lateral (
        select first_id, first_offset + ids.id - first_id as message_offset
        from {runs} where last_id >= ids.id order by last_id limit 1
    ) as run
    join held on message_offset between held.first_offset and held.last_offset
    where run.first_id <= ids.id and (left_ids is null or ids.id <> all(left_ids))
), extended as (
    update {ranges}
    set lease_until = {now} + cast(:lease as float8) * interval '1 second'
    where id in (select range_id from found)
    returning id, lease_until
)
select found.id, lease_until from found join extended on extended.id = range_id;
