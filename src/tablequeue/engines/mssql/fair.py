"""Claims that take one message of each group in turn, on SQL Server."""

from __future__ import annotations

import random

from tablequeue.engines.base import LOOKED_AT, Params, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.fair import HIGHEST, LOWEST, STEPS, Claim, Fair
from tablequeue.engines.texts import Row
from tablequeue.model.definition import Definition

# How often a claim chooses messages before it is empty.
TRIES = 3
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

SHARE = """@n / nullif(@groups, 0)
            + case when ring.number <= @n - @n / nullif(@groups, 0) * @groups then 1 else 0 end"""
SHARE_WITH_ROOM = """(
                select min(given.number) from (values
                    (ring.room),
                    (%s)
                ) as given (number)
            )"""
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
        coalesce(cast(
            {share} as bigint
        ), 0)
    ) id
    from {queue} with (index ({table}__ready), readpast, readcommittedlock)
    where {claimable} and slot = ring.slot{within}
    order by id
) as message;"""


# The same in a queue with limits for each group: with the room of each group. A group without room is passed over. The
# claim locks the stripe of a group, and then counts again: nobody else can claim of that group any more.
RING_WITH_ROOM = """\
declare @served bigint = :served;
declare @slot bigint = @served;
declare @next bigint;
declare @lap int = 0;
declare @groups int = 0;
declare @stripe int;
declare @room bigint;
declare @ring table (number int not null primary key, slot bigint not null, room bigint not null);
delete from @ring;
while @groups < @n and @lap < 2
begin
    set @next = null;
    set @stripe = null;
    select top (1) @next = slot
    from {queue} with (index ({table}__ready), readpast, readcommittedlock)
    where {claimable} and slot > @slot and (@lap = 0 or slot <= @served){within}
    order by slot, id;
    set @room = {left};
    if @next is not null and @room > 0
        select @stripe = stripe
        from {stripes} with (rowlock, readpast, updlock, readcommittedlock)
        where stripe = cast(@next & {last_stripe} as int);
    if @stripe is not null set @room = {left};
    if @next is null
    begin
        set @lap = @lap + 1;
        set @slot = {lowest};
    end
    else
        set @slot = @next;
    if @stripe is not null and @room > 0
    begin
        set @groups = @groups + 1;
        insert into @ring (number, slot, room) values (@groups, @next, @room);
    end;
end;"""

# How many messages of the group @next may be claimed: by `per_group`, and by its rate.
PLACES_LEFT = "{per_group} - (select count(*) from {queue} where state = 'in_progress' and slot = @next)"
TOKENS_LEFT = (
    "coalesce((select case when spent_until > @now then {group_burst} - (datediff_big(microsecond, @now, spent_until) "
    "+ {group_step} - 1) / {group_step} else {group_burst} end from {group_rates} where slot = @next), {group_burst})"
)
LEAST = """(
        select min(given.number) from (values
            ({places}),
            ({tokens})
        ) as given (number)
    )"""

# Sets @wait: the seconds until one of the first groups that have something ready has room for it.
UNTIL_GROUP = """\
declare @wait float;
declare @own float;
declare @slot bigint = {lowest};
declare @next bigint;
declare @looked int = 0;
while @looked < {looked_at} and (@wait is null or @wait > 0)
begin
    set @next = null;
    select top (1) @next = slot
    from {queue} with (index ({table}__ready))
    where {free} and slot > @slot
    order by slot, id;
    if @next is null break;
    set @own = (select max(given.seconds) from (values (0e0), {waits}) as given (seconds));
    set @wait = case when @wait < @own then @wait else @own end;
    set @slot = @next;
    set @looked = @looked + 1;
end;"""
UNTIL_PLACE = """(
        case when {places} > 0 then 0e0 else coalesce(datediff_big(microsecond, @now, (
            select min(lease_until) from {queue} where state = 'in_progress' and slot = @next
        )) / 1e6, 1e0) end
    )"""
UNTIL_TOKEN = """((
        select (datediff_big(microsecond, @now, spent_until) - ({group_burst} - 1) * {group_step}) / 1e6
        from {group_rates} where slot = @next
    ))"""


class SQLServerFair(Fair):
    asks_alone = False

    def claimed(self, claim: Claim, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Claim messages in turn, as the base does. Choose again if others claimed all that was chosen.

        The statements that choose share no lock with the one that claims, so such a claim is empty although other
        messages are ready. Where limits apply, what is ready may not be claimed: there it is not repeated.
        """
        for _ in range(TRIES):
            rows = super().claimed(claim, cursor, table, params)
            looked: Params = {"n": 1, "served": table.ring.served, "now": params.get("now")}
            if rows or table.definition.limited or self._row(cursor, table, "claim_ring", looked) is None:
                return rows
        return []

    def _begin(self, cursor: Cursor, table: Table) -> None:
        if table.ring.served is None:
            table.ring.served = random.randint(LOWEST, HIGHEST)
            params: Params = {"n": STEPS, "served": table.ring.served, "now": None}
            last = self._row(cursor, table, "claim_ring", params)
            if last is not None:
                table.ring.served = last[0]

    def _segments(self, table: Table, marks: dict[int, int]) -> Params:
        return {"served": table.ring.served}


def fair_words(definition: Definition, words: dict[str, str]) -> dict[str, str]:
    """Return the `{words}` of the texts of a fair queue."""
    lowest, fair = LOWEST + 1, definition.fair
    places = PLACES_LEFT.format(**words) if definition.per_group is not None else ""
    tokens = TOKENS_LEFT.format(**words) if definition.group_rate is not None else ""
    both = LEAST.format(places=places, tokens=tokens) if places and tokens else places or tokens

    def in_turn(left: str, within: str = "") -> str:
        ring = (RING_WITH_ROOM if left else RING).format(**words, lowest=lowest, within=within, left=left)
        share = SHARE_WITH_ROOM % SHARE if left else SHARE
        return IN_TURN.format(**words, within=within, ring_of_groups=ring, share=share)

    waits = [UNTIL_PLACE.format(**words, places=places)] if places else []
    waits += [UNTIL_TOKEN.format(**words)] if tokens else []
    until_group = UNTIL_GROUP.format(**words, lowest=lowest, looked_at=LOOKED_AT, waits=", ".join(waits))
    later = f"(select max(given.seconds) from (values ({words['until_room']}), (@wait)) as given (seconds))"  # noqa: S608
    return {
        **({"until_group": until_group, "until_room": later} if both else {}),
        "slot_of_group": SLOT,
        "slot_of_text": SLOT.replace("group_key", "convert(varbinary(1020), group_key)"),
        "ring_of_n": RING.format(**words, lowest=LOWEST + 1, within=""),
        "in_turn": in_turn(both),
        "take_in_turn": in_turn(tokens),
        "in_turn_up_to_high": in_turn(both, " and id <= @high"),
        "of_inserted": ", inserted.slot" if fair else "",
        "of_deleted": ", deleted.slot" if fair else "",
        "ring_of_session": f"N'tablequeue.{words['table']}.ring'",
    }
