"""Claims that take one message of each group in turn, on SQLite.

Only one transaction at a time claims anyway. So a row of the database remembers the group that was served last, and the
turns are the same for all processes, however short they live. That row is in the transaction of the claim.
"""

from __future__ import annotations

from collections.abc import Mapping

from tablequeue.engines.base import Params, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.fair import Fair

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


class SQLiteFair(Fair):
    def _begin(self, cursor: Cursor, table: Table) -> None:
        table.ring.served = self._row(cursor, table, "claim_ring", {})[0]

    def _segments(self, table: Table, marks: dict[int, int]) -> Params:
        return {}

    def _served(self, cursor: Cursor, table: Table) -> None:
        self._run(cursor, table, "move_ring", {"served": table.ring.served})


def fair_words(words: Mapping[str, str]) -> dict[str, str]:
    """Return the `{words}` of the texts of a fair queue."""

    def in_turn(n: str, within: str = "") -> str:
        return IN_TURN.format(**words, n=n, within=within).replace("\n", "\n    ")

    return {
        "in_turn": in_turn(words["claim_limit"]),
        "take_in_turn": in_turn(words["take_limit"]),
        "in_turn_up_to_high": in_turn(words["claim_limit"], " and id <= ifnull(:high, id)"),
    }
