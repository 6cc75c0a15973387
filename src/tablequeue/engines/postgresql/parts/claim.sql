-- Which messages a claim claims: of a fair queue, and of a queue with limits.

-- name: in_turn
-- The messages that a claim of a fair queue claims: of the n / groups first ones of each group, and of one more in the
-- groups that come first. Those of a `take`; none, `if_completed` is given and not all were completed; and those that
-- `up_to_high` has. Only as many groups are looked for as are wanted. For one message these may be more, because others
-- may have locked the ready ones of a group; the ring is read only as far as is needed.
-- [group_rate not if_completed or per_group not take not if_completed]
{chosen_in_turn with_room}
-- [else]
{chosen_in_turn}
-- [end]

-- name: chosen_in_turn
-- In a queue with limits for each group, no more of a group than it has room for. The claim locks the stripe of a
-- group. If another one has claimed in it since the snapshot, its number has changed, and the group is passed over: so
-- what the snapshot counts is exact.
{ring_of_groups}
select message.id
from ring
-- [with_room]
cross join lateral (
    select stripe from {stripes}
    where stripe = ring.slot & {last_stripe} and claims = ring.claims
    for update skip locked
) as stripe
-- [end]
cross join lateral (
    select id from {queue}
    where state = 'ready' and {slot} = ring.slot and id >= ring.id{up_to_high}{in_time}
    order by id
    -- [with_room]
    limit least(ring.room, {share})
    -- [else]
    limit {share}
    -- [end]
    for update skip locked
) as message
where ring.id is not null and {unpaused}
limit {turn_limit}

-- name: share
case
    when {turn_limit} = 1 then 1
    else {turn_limit} / (select max(number) from ring)
        + case when ring.number <= {turn_limit} % (select max(number) from ring) then 1 else 0 end
end

-- name: ring_of_groups
-- The groups that have something ready, from the one that was served last on, in the order of their slots. Each step is
-- one look into the index, which passes over the other messages of the group before. The steps follow the segments that
-- fair.py has made: at the end of one the next begins. A row without an id is such a beginning, and no group. In a
-- queue with limits for each group, one without room is passed over, at the price of a look; `claims` is the number
-- that the snapshot has of the stripe of the group.
-- [with_room]
with recursive ring (segment, slot, above, number, id, room, claims) as (
    select
        1, (cast(:starts as bigint[]))[1], (cast(:above as bigint[]))[1], 0, cast(null as bigint), cast(0 as bigint),
        cast(0 as bigint)
-- [else]
with recursive ring (segment, slot, above, number, id) as (
    select 1, (cast(:starts as bigint[]))[1], (cast(:above as bigint[]))[1], 0, cast(null as bigint)
-- [end]
    union all
    select
        case when next.id is null then segment + 1 else segment end,
        case when next.id is null then (cast(:starts as bigint[]))[segment + 1] else next.slot end,
        case when next.id is null then (cast(:above as bigint[]))[segment + 1] else 9223372036854775807 end,
        case when {wanted_group} then number + 1 else number end,
        case when {wanted_group} then next.id end
        -- [with_room]
        ,
        next.room,
        (select claims from {stripes} where stripe = next.slot & {last_stripe})
        -- [end]
    from ring
    left join lateral (
        -- [with_room]
        select first.slot, first.id, {left} as room
        from (
        -- [end]
            select {slot} as slot, id from {queue}
            where state = 'ready' and ({slot}, id) > (ring.slot, ring.above)
                and {slot} <= (cast(:ends as bigint[]))[segment]
            order by {slot}, id
            limit 1
        -- [with_room]
        ) as first
        -- [end]
    ) as next on true
    -- [of_n]
    where number < :n and segment <= array_length(cast(:ends as bigint[]), 1)
    -- [else]
    where number < greatest({turn_limit}, case when {turn_limit} = 1 then 32 else 0 end)
        and segment <= array_length(cast(:ends as bigint[]), 1)
    -- [end]
)

-- name: random_group
-- The slot of a random one of up to :n groups.
{ring_of_groups of_n}
select slot from ring where id is not null order by random() limit 1

-- name: wanted_group
-- [up_to_high with_room]
next.room > 0 and next.id <= coalesce(cast(:high as bigint), next.id)
-- [up_to_high not with_room]
next.id <= coalesce(cast(:high as bigint), next.id)
-- [with_room not up_to_high]
next.room > 0 and next.id is not null
-- [not with_room not up_to_high]
next.id is not null
-- [end]

-- name: turn_limit
-- How many messages a claim in turn may claim.
-- [if_completed]
cast(case when (select count(*) from finished) = :number then :n else 0 end as bigint)
-- [take]
cast({take_limit} as bigint)
-- [not take not if_completed]
cast({claim_limit} as bigint)
-- [end]

-- name: up_to_high
-- The end of what a claim of a stream may claim.
-- [up_to_high]
 and id <= coalesce(cast(:high as bigint), id)
-- [end]

-- name: left
-- How many messages of the group `first` may be claimed: by `per_group`, and by its rate.
-- [per_group not group_rate]
{places_left}
-- [group_rate not per_group or group_rate take]
{tokens_left}
-- [group_rate per_group not take]
least({places_left}, {tokens_left})
-- [end]

-- name: places_left
-- The same by `per_group`. The order makes the planner use the index of the groups, and not that of the leases,
-- whatever the statistics say.
{per_group} - (
    select count(*) from (
        select from {queue} where state = 'in_progress' and {slot} = first.slot order by {slot}, id
        limit {per_group}
    ) as held
)

-- name: tokens_left
coalesce((
    select cast(greatest(0, floor({group_burst} - {missing} / {group_step})) as bigint)
    from {group_rates} where slot = first.slot
), {group_burst})

-- name: missing
-- The microseconds until all tokens of a rate are there again.
greatest(0, extract(epoch from spent_until - {now}) * 1000000)

-- name: until_room
-- The seconds until the limits of the queue allow a message.
-- [group_limited]
greatest({until_rate}, {until_group})
-- [else]
{until_rate}
-- [end]

-- name: until_group
-- The seconds until one of the first groups that have something ready has room for it.
(
    with recursive ready (slot, number) as (
        (select {slot}, 1 from {queue} where {free} order by {slot} limit 1)
        union all
        select (select {slot} from {queue} where {free} and {slot} > ready.slot order by {slot} limit 1), number + 1
        from ready
        where slot is not null and number < {looked_at}
    )
    select coalesce(cast(min(greatest(
        0
        -- [per_group]
        , case when {places_left} > 0 then 0 else (
            select extract(epoch from min(lease_until) - {now}) from (
                select lease_until from {queue} where state = 'in_progress' and {slot} = first.slot order by {slot}, id
                offset 0
            ) as held
        ) end
        -- [group_rate]
        , coalesce((
            select ({missing} - ({group_burst} - 1) * cast({group_step} as bigint)) / 1000000
            from {group_rates} where slot = first.slot
        ), 0)
        -- [end]
    )) as float8), 1)
    from ready as first
    where slot is not null
)
