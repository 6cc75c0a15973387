-- Which messages a claim claims: of a fair queue, and of a queue with limits.

-- name: in_turn
-- The messages that a claim of a fair queue claims; those of a `take`, and those that `up_to_high` has.
-- [group_rate or per_group not take]
{limited_turn}
-- [else]
{plain_turn}
-- [end]

-- name: plain_turn
-- The groups that have something ready, in the order of their names: those behind the one that was served last, then
-- the others. Then the messages to claim: of the n / groups first ones of each, and of one more in the groups that come
-- first. The `+` takes the type of the column away, with which no index would serve the comparison.
with recursive behind (slot) as (
    select (
        select {slot} from {queue} where state = 'ready' and {slot} > (select +served from {ring})
        order by {slot} limit 1
    )
    union all
    select (
        select {slot} from {queue} where state = 'ready' and {slot} > behind.slot order by {slot} limit 1
    )
    from behind
    where behind.slot is not null
    limit {turn_limit}
), before (slot) as (
    select (select {slot} from {queue} where state = 'ready' order by {slot} limit 1)
    union all
    select (
        select {slot} from {queue} where state = 'ready' and {slot} > before.slot order by {slot} limit 1
    )
    from before
    where before.slot < (select +served from {ring})
    limit {turn_limit}
), ring (slot, number) as (
    select slot, row_number() over ()
    from (
        select slot from behind where slot is not null
        union all
        select slot from before where slot <= (select +served from {ring})
        limit {turn_limit}
    )
)
select message.id
from ring
cross join {queue} as message
where {unpaused} and state = 'ready' and {slot} = ring.slot{up_to_high}{in_time} and id <= ifnull(
    case when ring.number <= {turn_limit} % (select max(number) from ring) then (
        select id from {queue} where state = 'ready' and {slot} = ring.slot{up_to_high}
        order by id limit 1 offset {turn_limit} / (select max(number) from ring)
    ) else (
        select id from {queue} where state = 'ready' and {slot} = ring.slot{up_to_high}
        order by id limit 1 offset {turn_limit} / (select max(number) from ring) - 1
    ) end,
    9223372036854775807
)
limit {turn_limit}

-- name: limited_turn
-- The same in a queue with limits for each group. A group without room is passed over, at the price of a look. `number`
-- counts the groups with room before the one of the row.
with recursive behind (slot, number) as (
    select (
        select {slot} from {queue} where state = 'ready' and {slot} > (select +served from {ring})
        order by {slot} limit 1
    ), 0
    union all
    select (
        select {slot} from {queue} where state = 'ready' and {slot} > behind.slot order by {slot} limit 1
    ), number + ({left of=behind} > 0)
    from behind
    where behind.slot is not null and number < {turn_limit}
), before (slot, number) as (
    select (select {slot} from {queue} where state = 'ready' order by {slot} limit 1), 0
    union all
    select (
        select {slot} from {queue} where state = 'ready' and {slot} > before.slot order by {slot} limit 1
    ), number + ({left of=before} > 0)
    from before
    where before.slot < (select +served from {ring}) and number < {turn_limit}
), ring (slot, room, number) as (
    select slot, room, row_number() over ()
    from (
        select slot, room from (
            select slot, {left of=behind} as room from behind where slot is not null
        ) where room > 0
        union all
        select slot, room from (
            select slot, {left of=before} as room from before where slot <= (select +served from {ring})
        ) where room > 0
        limit {turn_limit}
    )
), chosen (slot, most, id, place) as (
    select
        slot,
        min(
            room, {turn_limit} / (select max(number) from ring)
                + (number <= {turn_limit} % (select max(number) from ring))
        ), (
            select id from {queue} where state = 'ready' and {slot} = ring.slot{up_to_high}{in_time} order by id limit 1
        ), 1
    from ring
    union all
    select
        slot, most, (
            select id from {queue}
            where state = 'ready' and {slot} = chosen.slot and id > chosen.id{up_to_high}{in_time}
            order by id limit 1
        ), place + 1
    from chosen
    where place < most and chosen.id is not null
)
select id
from chosen
where id is not null and {unpaused}
limit {turn_limit}

-- name: turn_limit
-- How many messages a claim in turn may claim.
-- [take]
:n
-- [else]
{claim_limit}
-- [end]

-- name: up_to_high
-- The end of what a claim of a stream may claim.
-- [up_to_high]
 and id <= ifnull(:high, id)
-- [end]

-- name: left
-- How many messages of the group {of} may be claimed: by `per_group`, and by its rate.
-- [per_group not group_rate]
{places_left}
-- [group_rate not per_group or group_rate take]
{tokens_left}
-- [group_rate per_group not take]
min({places_left}, {tokens_left})
-- [end]

-- name: places_left
{per_group} - (select count(*) from {queue} where state = 'in_progress' and {slot} = {of}.slot)

-- name: tokens_left
ifnull((
    select {group_burst} - (max(0, spent_until - {now}) + {group_step} - 1) / {group_step}
    from {group_rates} as spent where spent.slot = {of}.slot
), {group_burst})

-- name: claim_limit
-- How many messages a claim may claim in a queue that limits those in progress. A negative limit would be none.
-- [not concurrency]
:n
-- [else]
max(0, min(:n, (select places from {slots}) - (select count(*) from {queue} where state = 'in_progress')))
-- [end]

-- name: until_room
-- The seconds until the limits of the queue allow a message.
-- [group_limited]
max({until_rate}, {until_group} / 1e6)
-- [else]
{until_rate}
-- [end]

-- name: until_group
-- The microseconds until one of the first groups that have something ready has room for it.
(
    with recursive ready (slot, number) as (
        select (select {slot} from {queue} where {free} order by {slot} limit 1), 1
        union all
        select (
            select {slot} from {queue} where {free} and {slot} > ready.slot order by {slot} limit 1
        ), number + 1
        from ready
        where slot is not null and number < {looked_at}
    )
    select ifnull(min({until_room_of_group}), 1000000)
    from ready
    where slot is not null
)

-- name: until_room_of_group
-- The microseconds until the group `ready` has room.
-- [per_group not group_rate]
{until_place_of_group}
-- [group_rate not per_group]
{until_token_of_group}
-- [per_group group_rate]
max({until_place_of_group}, {until_token_of_group})
-- [end]

-- name: until_place_of_group
case when {places_left of=ready} > 0 then 0 else (
    select max(0, min(lease_until) - {now}) from {queue} where state = 'in_progress' and {slot} = ready.slot
) end

-- name: until_token_of_group
ifnull((
    select max(0, spent_until - ({group_burst} - 1) * {group_step} - {now})
    from {group_rates} as spent where spent.slot = ready.slot
), 0)
