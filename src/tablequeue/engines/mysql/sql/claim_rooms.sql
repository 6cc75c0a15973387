-- Of each group of :slots the number of claims of its stripe, how many of its messages may be claimed, and the seconds
-- until one may. A message that the claim :removes needs no place.
-- Indexes: the primary keys, {table}__working. Locks: none.
select
    room.slot, room.claims, room.room,
    case when room.room > 0 then 0 else greatest(
        -- [per_group]
        timestampdiff(microsecond, {now}, coalesce((
            select min(sweep_at) from {queue} force index ({table}__working) where working = 1 and slot = room.slot
        ), {now} + interval 1 second)) / 1e6 * (room.places <= 0),
        -- [end]
        -- [group_rate]
        (greatest(0, timestampdiff(microsecond, {now}, room.spent_until)) - ({group_burst} - 1) * {group_step}) / 1e6,
        -- [end]
        0, 0
    ) end as seconds
from (
    select
        counted.*,
        least(
            -- [group_rate]
            {group_burst} - ceiling(greatest(0, timestampdiff(microsecond, {now}, spent_until)) / {group_step}),
            -- [end]
            places, places
        ) as room
    from (
        select
            given.slot, stripe.claims,
            -- [per_group]
            case when :removes then 2147483647 else {per_group} - (
                select count(*) from {queue} as message force index ({table}__working)
                where message.working = 1 and message.slot = given.slot
            ) end as places
            -- [end]
            -- [not per_group]
            2147483647 as places
            -- [end]
            -- [group_rate]
            , coalesce((
                select rate.spent_until from {group_rates} as rate where rate.slot = given.slot
            ), '1970-01-01') as spent_until
            -- [end]
        from json_table(:slots, '$[*]' columns (slot bigint path '$')) as given
        straight_join {stripes} as stripe force index (primary) on stripe.stripe = given.slot & {last_stripe}
    ) as counted
) as room;
