"""The SQL of claims that take one message of each group in turn."""

from __future__ import annotations

from collections.abc import Mapping

from tablequeue.engines.base import LOOKED_AT
from tablequeue.engines.fair import HIGHEST, LOWEST, STEPS
from tablequeue.model.definition import Definition
from tablequeue.model.names import PART

# A slot of 64 bits: two of 3,000,000 groups share one with a chance of one in 4,000,000.
SLOT = "hashtextextended(coalesce(group_key, ''), 0)"

# The groups that have something ready, from the one that was served last on, in the order of their slots. Each step is
# one look into the index, which passes over the other messages of the group before. The steps follow the segments that
# fair.py has made: at the end of one the next begins. A row without an id is such a beginning, and no group.
RING = """\
with recursive ring (segment, slot, above, number, id) as (
    select 1, ({starts})[1], ({above})[1], 0, cast(null as bigint)
    union all
    select
        case when next.id is null then segment + 1 else segment end,
        case when next.id is null then ({starts})[segment + 1] else next.slot end,
        case when next.id is null then ({above})[segment + 1] else {highest} end,
        case when {wanted_group} then number + 1 else number end,
        case when {wanted_group} then next.id end
    from ring
    left join lateral (
        select {slot} as slot, id from {queue}
        where state = 'ready' and ({slot}, id) > (ring.slot, ring.above) and {slot} <= ({ends})[segment]
        order by {slot}, id
        limit 1
    ) as next on true
    where number < {groups} and segment <= array_length({ends}, 1)
)"""

# The messages to claim: of the n / groups first ones of each, and of one more in the groups that come first. Only as
# many groups are looked for as are wanted. For one message these may be more, because others may have locked the ready
# ones of a group; the ring is read only as far as is needed.
IN_TURN = """\
{ring_of_groups}
select message.id
from ring
cross join lateral (
    select id from {queue}
    where state = 'ready' and {slot} = ring.slot and id >= ring.id{within}{in_time}
    order by id
    limit case
        when {n} = 1 then 1
        else {n} / (select max(number) from ring)
            + case when ring.number <= {n} % (select max(number) from ring) then 1 else 0 end
    end
    for update skip locked
) as message
where ring.id is not null and {unpaused}
limit {n}"""

# The same in a queue with limits for each group. A group without room is passed over, at the price of a look. `claims`
# is the number that the snapshot has of the stripe of the group.
RING_WITH_ROOM = """\
with recursive ring (segment, slot, above, number, id, room, claims) as (
    select 1, ({starts})[1], ({above})[1], 0, cast(null as bigint), cast(0 as bigint), cast(0 as bigint)
    union all
    select
        case when next.id is null then segment + 1 else segment end,
        case when next.id is null then ({starts})[segment + 1] else next.slot end,
        case when next.id is null then ({above})[segment + 1] else {highest} end,
        case when next.room > 0 and {wanted_group} then number + 1 else number end,
        case when next.room > 0 and {wanted_group} then next.id end,
        next.room,
        (select claims from {stripes} where stripe = next.slot & {last_stripe})
    from ring
    left join lateral (
        select first.slot, first.id, {left} as room
        from (
            select {slot} as slot, id from {queue}
            where state = 'ready' and ({slot}, id) > (ring.slot, ring.above) and {slot} <= ({ends})[segment]
            order by {slot}, id
            limit 1
        ) as first
    ) as next on true
    where number < {groups} and segment <= array_length({ends}, 1)
)"""

# The messages to claim of such a queue: as IN_TURN, and of no group more than it has room for. The claim locks the
# stripe of a group. If another one has claimed in it since the snapshot, its number has changed, and the group is
# passed over: so what the snapshot counts is exact.
IN_TURN_WITH_ROOM = """\
{ring_of_groups}
select message.id
from ring
cross join lateral (
    select stripe from {stripes}
    where stripe = ring.slot & {last_stripe} and claims = ring.claims
    for update skip locked
) as stripe
cross join lateral (
    select id from {queue}
    where state = 'ready' and {slot} = ring.slot and id >= ring.id{within}{in_time}
    order by id
    limit least(ring.room, case
        when {n} = 1 then 1
        else {n} / (select max(number) from ring)
            + case when ring.number <= {n} % (select max(number) from ring) then 1 else 0 end
    end)
    for update skip locked
) as message
where ring.id is not null and {unpaused}
limit {n}"""

# How many messages of the group `first` may be claimed: by `per_group`, and by its rate.
# The order makes the planner use the index of the groups, and not that of the leases, whatever the statistics say.
PLACES_LEFT = """{per_group} - (
            select count(*) from (
                select from {queue} where state = 'in_progress' and {slot} = first.slot order by {slot}, id
                limit {per_group}
            ) as held
        )"""
TOKENS_LEFT = """coalesce((
            select cast(greatest(0, floor({group_burst} - {missing} / {group_step})) as bigint)
            from {group_rates} where slot = first.slot
        ), {group_burst})"""
MISSING = "greatest(0, extract(epoch from spent_until - {now}) * 1000000)"

# The seconds until one of the first groups that have something ready has room for it.
UNTIL_ROOM = """(
        with recursive ready (slot, number) as (
            (select {slot}, 1 from {queue} where {free} order by {slot} limit 1)
            union all
            select (select {slot} from {queue} where {free} and {slot} > ready.slot order by {slot} limit 1), number + 1
            from ready
            where slot is not null and number < {looked_at}
        )
        select coalesce(cast(min(greatest(0, {waits})) as float8), 1)
        from ready as first
        where slot is not null
    )"""
UNTIL_PLACE = """case when {left} > 0 then 0 else (
            select extract(epoch from min(lease_until) - {now}) from (
                select lease_until from {queue} where state = 'in_progress' and {slot} = first.slot order by {slot}, id
                offset 0
            ) as held
        ) end"""
UNTIL_TOKEN = """coalesce((
            select ({missing} - ({group_burst} - 1) * {group_step}) / 1000000
            from {group_rates} where slot = first.slot
        ), 0)"""

# Groups that a claim of one message looks at, if others are claiming their messages.
LOOK = 32


def until_group(definition: Definition, words: Mapping[str, str]) -> str:
    """Return the seconds until one of the groups that have something ready may be claimed from."""
    words = {**words, "missing": MISSING.format(**words), "looked_at": str(LOOKED_AT)}
    waits = []
    if definition.per_group is not None:
        waits.append(UNTIL_PLACE.format(**words, left=PLACES_LEFT.format(**words)))
    if definition.group_rate is not None:
        waits.append(UNTIL_TOKEN.format(**words))
    return UNTIL_ROOM.format(**words, waits=", ".join(waits))


def fair_words(definition: Definition, words: Mapping[str, str]) -> dict[str, str]:
    """Return the `{words}` of the texts of a fair queue."""
    arrays = {name: f"cast(:{name} as bigint[])" for name in ("starts", "above", "ends")}

    def ring(groups: str, high: str | None = None, room: str = "") -> str:
        wanted = "next.id is not null" if high is None else f"next.id <= coalesce({high}, next.id)"
        text = RING_WITH_ROOM if room else RING
        return text.format(**words, **arrays, highest=HIGHEST, groups=groups, wanted_group=wanted, left=room)

    def in_turn(n: str, high: str | None = None, room: str = "") -> str:
        n = f"cast({n} as bigint)"
        within = "" if high is None else f" and id <= coalesce({high}, id)"
        groups = f"greatest({n}, case when {n} = 1 then {LOOK} else 0 end)"
        text = IN_TURN_WITH_ROOM if room else IN_TURN
        return text.format(**words, n=n, within=within, ring_of_groups=ring(groups, high, room)).replace("\n", "\n    ")

    counted = {**words, "missing": MISSING.format(**words)}
    places = PLACES_LEFT.format(**counted) if definition.per_group is not None else ""
    tokens = TOKENS_LEFT.format(**counted) if definition.group_rate is not None else ""
    room = f"least({places}, {tokens})" if places and tokens else places or tokens
    completed = "case when (select count(*) from finished) = :number then :n else 0 end"
    return {
        "ring_of_n": ring(":n"),
        "ring_of_session": f"{words['table']}{PART}ring",
        "ring_steps": str(STEPS),
        "ring_starts": f"array[served, {LOWEST}]",
        "ring_above": f"array[{HIGHEST}, {LOWEST}]",
        "ring_ends": f"array[{HIGHEST}, served]",
        "in_turn": in_turn(words["claim_limit"], room=room),
        "take_in_turn": in_turn(words["take_limit"], room=tokens),
        "in_turn_if_completed": in_turn(completed).replace("\n", "\n    "),
        "in_turn_up_to_high": in_turn(words["claim_limit"], "cast(:high as bigint)", room),
    }
