"""Claims that take one message of each group in turn, on SQLite.

Only one transaction at a time claims anyway. So a row of the database remembers the group that was served last, and the
turns are the same for all processes, however short they live. That row is in the transaction of the claim.
"""

from __future__ import annotations

from collections.abc import Mapping

from tablequeue.engines.base import LOOKED_AT, Params, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.fair import Fair
from tablequeue.model.definition import Definition

SLOT = "ifnull(group_key, '')"

# The groups that have something ready, in the order of their names: those behind the one that was served last, then
# the others. Then the messages to claim: of the n / groups first ones of each, and of one more in the groups that come
# first. The `+` takes the type of the column away, with which no index would serve the comparison.
IN_TURN = """\
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
    limit {n}
), before (slot) as (
    select (select {slot} from {queue} where state = 'ready' order by {slot} limit 1)
    union all
    select (
        select {slot} from {queue} where state = 'ready' and {slot} > before.slot order by {slot} limit 1
    )
    from before
    where before.slot < (select +served from {ring})
    limit {n}
), ring (slot, number) as (
    select slot, row_number() over ()
    from (
        select slot from behind where slot is not null
        union all
        select slot from before where slot <= (select +served from {ring})
        limit {n}
    )
)
select message.id
from ring
cross join {queue} as message
where {unpaused} and state = 'ready' and {slot} = ring.slot{within}{in_time} and id <= ifnull(
    case when ring.number <= {n} % (select max(number) from ring) then (
        select id from {queue} where state = 'ready' and {slot} = ring.slot{within}
        order by id limit 1 offset {n} / (select max(number) from ring)
    ) else (
        select id from {queue} where state = 'ready' and {slot} = ring.slot{within}
        order by id limit 1 offset {n} / (select max(number) from ring) - 1
    ) end,
    9223372036854775807
)
limit {n}"""


# The same in a queue with limits for each group. A group without room is passed over, at the price of a look. `number`
# counts the groups with room before the one of the row.
IN_TURN_WITH_ROOM = """\
with recursive behind (slot, number) as (
    select (
        select {slot} from {queue} where state = 'ready' and {slot} > (select +served from {ring})
        order by {slot} limit 1
    ), 0
    union all
    select (
        select {slot} from {queue} where state = 'ready' and {slot} > behind.slot order by {slot} limit 1
    ), number + ({room_of_behind} > 0)
    from behind
    where behind.slot is not null and number < {n}
), before (slot, number) as (
    select (select {slot} from {queue} where state = 'ready' order by {slot} limit 1), 0
    union all
    select (
        select {slot} from {queue} where state = 'ready' and {slot} > before.slot order by {slot} limit 1
    ), number + ({room_of_before} > 0)
    from before
    where before.slot < (select +served from {ring}) and number < {n}
), ring (slot, room, number) as (
    select slot, room, row_number() over ()
    from (
        select slot, room from (
            select slot, {room_of_behind} as room from behind where slot is not null
        ) where room > 0
        union all
        select slot, room from (
            select slot, {room_of_before} as room from before where slot <= (select +served from {ring})
        ) where room > 0
        limit {n}
    )
), chosen (slot, most, id, place) as (
    select
        slot, min(room, {n} / (select max(number) from ring) + (number <= {n} % (select max(number) from ring))), (
            select id from {queue} where state = 'ready' and {slot} = ring.slot{within}{in_time} order by id limit 1
        ), 1
    from ring
    union all
    select
        slot, most, (
            select id from {queue}
            where state = 'ready' and {slot} = chosen.slot and id > chosen.id{within}{in_time}
            order by id limit 1
        ), place + 1
    from chosen
    where place < most and chosen.id is not null
)
select id
from chosen
where id is not null and {unpaused}
limit {n}"""

# How many messages of a group may be claimed: by `per_group`, and by its rate.
PLACES_LEFT = "{per_group} - (select count(*) from {queue} where state = 'in_progress' and {slot} = {{of}}.slot)"
TOKENS_LEFT = (
    "ifnull((select {group_burst} - (max(0, spent_until - {now}) + {group_step} - 1) / {group_step} "
    "from {group_rates} as spent where spent.slot = {{of}}.slot), {group_burst})"
)

# The microseconds until one of the first groups that have something ready has room for it.
UNTIL_ROOM = """(
        with recursive ready (slot, number) as (
            select (select {slot} from {queue} where {free} order by {slot} limit 1), 1
            union all
            select (
                select {slot} from {queue} where {free} and {slot} > ready.slot order by {slot} limit 1
            ), number + 1
            from ready
            where slot is not null and number < {looked_at}
        )
        select ifnull(min({waits}), 1000000)
        from ready
        where slot is not null
    )"""
UNTIL_PLACE = """case when {left} > 0 then 0 else (
            select max(0, min(lease_until) - {now}) from {queue} where state = 'in_progress' and {slot} = ready.slot
        ) end"""
UNTIL_TOKEN = """ifnull((
            select max(0, spent_until - ({group_burst} - 1) * {group_step} - {now})
            from {group_rates} as spent where spent.slot = ready.slot
        ), 0)"""


class SQLiteFair(Fair):
    def _begin(self, cursor: Cursor, table: Table) -> None:
        table.ring.served = self._row(cursor, table, "claim_ring", {})[0]

    def _segments(self, table: Table, marks: dict[int, int]) -> Params:
        return {}

    def _served(self, cursor: Cursor, table: Table) -> None:
        self._run(cursor, table, "move_ring", {"served": table.ring.served})


def until_group(definition: Definition, words: Mapping[str, str]) -> str:
    """Return the microseconds until one of the groups that have something ready may be claimed from."""
    waits = []
    if definition.per_group is not None:
        waits.append(UNTIL_PLACE.format(**words, left=PLACES_LEFT.format(**words).format(of="ready")))
    if definition.group_rate is not None:
        waits.append(UNTIL_TOKEN.format(**words))
    longest = waits[0] if len(waits) == 1 else f"max({', '.join(waits)})"
    return UNTIL_ROOM.format(**words, waits=longest, looked_at=LOOKED_AT)


def fair_words(definition: Definition, words: Mapping[str, str]) -> dict[str, str]:
    """Return the `{words}` of the texts of a fair queue."""

    def in_turn(n: str, room: str, within: str = "") -> str:
        rooms = {f"room_of_{of}": room.format(of=of) for of in ("behind", "before")}
        text = IN_TURN_WITH_ROOM if room else IN_TURN
        return text.format(**words, **rooms, n=n, within=within).replace("\n", "\n    ")

    places = PLACES_LEFT.format(**words) if definition.per_group is not None else ""
    tokens = TOKENS_LEFT.format(**words) if definition.group_rate is not None else ""
    room = f"min({places}, {tokens})" if places and tokens else places or tokens
    return {
        "in_turn": in_turn(words["claim_limit"], room),
        "take_in_turn": in_turn(words["take_limit"], tokens),
        "in_turn_up_to_high": in_turn(words["claim_limit"], room, " and id <= ifnull(:high, id)"),
    }
