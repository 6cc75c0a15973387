"""Claims that take one message of each group in turn, on SQL Server."""

from __future__ import annotations

import random

from tablequeue.engines.base import Params, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.fair import HIGHEST, LOWEST, STEPS, Fair

# A slot of 64 bits. The computed column is persisted, so a claim computes no hash.
SLOT = "cast(substring(hashbytes('MD5', coalesce(group_key, 0x)), 1, 8) as bigint)"

# Fills @ring: the groups that have something ready, behind the slot @served, once round. A look at each passes over its
# other messages. A recursive query may have no TOP here, so it is a loop. Locked messages are skipped, not waited for.
RING = """\
declare @served bigint = :served;
declare @slot bigint = @served;
declare @next bigint;
declare @lap int = 0;
declare @groups int = 0;
declare @ring table (number int not null primary key, slot bigint not null);
delete from @ring;
while @groups < @n and @lap < 2
begin
    set @next = null;
    select top (1) @next = slot
    from {queue} with (index ({table}__ready), readpast, readcommittedlock)
    where {claimable} and slot > @slot and (@lap = 0 or slot <= @served){within}
    order by slot, id;
    if @next is null
    begin
        set @lap = @lap + 1;
        set @slot = {lowest};
    end
    else
    begin
        set @groups = @groups + 1;
        set @slot = @next;
        insert into @ring (number, slot) values (@groups, @next);
    end;
end;"""

# Fills @chosen: the n / groups first messages of each group, and one more of the groups that come first. The claim
# locks those that are still ready.
IN_TURN = """\
{ring_of_groups}
declare @chosen table (id bigint not null primary key);
delete from @chosen;
insert into @chosen (id)
select message.id
from @ring as ring
cross apply (
    select top (
        cast(
            @n / nullif(@groups, 0)
            + case when ring.number <= @n - @n / nullif(@groups, 0) * @groups then 1 else 0 end as bigint
        )
    ) id
    from {queue} with (index ({table}__ready), readpast, readcommittedlock)
    where {claimable} and slot = ring.slot{within}
    order by id
) as message;"""


class SQLServerFair(Fair):
    def _begin(self, cursor: Cursor, table: Table) -> None:
        if table.ring.served is None:
            table.ring.served = random.randint(LOWEST, HIGHEST)
            params: Params = {"n": STEPS, "served": table.ring.served, "now": None}
            last = self._row(cursor, table, "claim_ring", params)
            if last is not None:
                table.ring.served = last[0]

    def _segments(self, table: Table, marks: dict[int, int]) -> Params:
        return {"served": table.ring.served}


def fair_words(words: dict[str, str], fair: bool) -> dict[str, str]:
    """Return the `{words}` of the texts of a fair queue."""

    def in_turn(within: str) -> str:
        return IN_TURN.format(
            **words, within=within, ring_of_groups=RING.format(**words, lowest=LOWEST + 1, within=within)
        )

    return {
        "slot_of_group": SLOT,
        "slot_of_text": SLOT.replace("group_key", "convert(varbinary(1020), group_key)"),
        "ring_of_n": RING.format(**words, lowest=LOWEST + 1, within=""),
        "in_turn": in_turn(""),
        "in_turn_up_to_high": in_turn(" and id <= @high"),
        "of_inserted": ", inserted.slot" if fair else "",
        "of_deleted": ", deleted.slot" if fair else "",
        "ring_of_session": f"N'tablequeue.{words['table']}.ring'",
    }
