"""The SQL of claims that take one message of each group in turn."""

from __future__ import annotations

from collections.abc import Mapping

from tablequeue.engines.fair import HIGHEST, LOWEST, STEPS
from tablequeue.names import PART

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

# Groups that a claim of one message looks at, if others are claiming their messages.
LOOK = 32


def fair_words(words: Mapping[str, str]) -> dict[str, str]:
    """Return the `{words}` of the texts of a fair queue."""
    arrays = {name: f"cast(:{name} as bigint[])" for name in ("starts", "above", "ends")}

    def ring(groups: str, high: str | None = None) -> str:
        wanted = "next.id is not null" if high is None else f"next.id <= coalesce({high}, next.id)"
        return RING.format(**words, **arrays, highest=HIGHEST, groups=groups, wanted_group=wanted)

    def in_turn(n: str, high: str | None = None) -> str:
        n = f"cast({n} as bigint)"
        within = "" if high is None else f" and id <= coalesce({high}, id)"
        groups = f"greatest({n}, case when {n} = 1 then {LOOK} else 0 end)"
        return IN_TURN.format(**words, n=n, within=within, ring_of_groups=ring(groups, high)).replace("\n", "\n    ")

    completed = "case when (select count(*) from finished) = :number then :n else 0 end"
    return {
        "ring_of_n": ring(":n"),
        "ring_of_session": f"{words['table']}{PART}ring",
        "ring_steps": str(STEPS),
        "ring_starts": f"array[served, {LOWEST}]",
        "ring_above": f"array[{HIGHEST}, {LOWEST}]",
        "ring_ends": f"array[{HIGHEST}, served]",
        "in_turn": in_turn(words["claim_limit"]),
        "take_in_turn": in_turn(words["take_limit"]),
        "in_turn_if_completed": in_turn(completed).replace("\n", "\n    "),
        "in_turn_up_to_high": in_turn(words["claim_limit"], "cast(:high as bigint)"),
    }
