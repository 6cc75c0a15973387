"""The words of the claims of a queue with limits: see `create_slots` and `create_rate`.

A claim of such a queue is one statement too. It locks places and the row of the rate, claims no more messages than
these allow, and notes what it has claimed. If others need the locked rows, it returns ids only, and the messages are
read after its commit: the lock would last until the client has received all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tablequeue.model.definition import Definition

# The places whose message is no longer in progress, and those of them that this claim gets. The snapshot may be older
# than the claim that filled a place last. So a place that is locked must have the note that the snapshot has: then
# nobody has filled it since. Without the second look at the note, two claims would get the same place.
# Subqueries, and not joins, look a message up by its primary key, and a place too, whatever the statistics say: a join
# compared each place with each, and took 160 ms with 1,000.
# As many of the free places as closed ones are occupied are passed over, the first ones. Claims with different
# snapshots agree: each leaves so many free places below those that it takes. No closed place costs one look.
PLACES = """free as materialized (
    select slot, message, token from {slots} as place
    where (
        select true from {queue} where id = place.message and token = place.token and state = 'in_progress'
    ) is null and exists (select from {queue} where {claimable}) and slot >= case
        when exists (select from {slots} where slot < 0) then (
            select slot from {slots} as place
            where slot > 0 and (
                select true from {queue} where id = place.message and token = place.token and state = 'in_progress'
            ) is null
            order by slot
            limit 1
            offset (
                select count(*) from {slots} as closed
                where slot < 0 and exists (
                    select from {queue} where id = closed.message and token = closed.token and state = 'in_progress'
                )
            )
        )
        else 1
    end
), place as materialized (
    select place.slot
    from free cross join lateral (
        select slot from {slots}
        where slot = free.slot and message = free.message and token = free.token
        for update skip locked
    ) as place
    limit :n
)"""
# How many messages the rate allows now. It waits for other claims: the lock of the row makes it exact.
TOKENS = """bucket as materialized (
    select cast({tokens} as bigint) as tokens
    from {rate}
    where exists (select from {queue} where {claimable})
    for update
)"""
NOTED = """noted as (
    update {slots} as place
    set message = noted.message, token = cast(:token as uuid)
    from unnest(array(select slot from place), array(select id from claimed)) as noted (slot, message)
    where place.slot = noted.slot and noted.message is not null
)"""
SPENT = """spent as (
    update {rate}
    set spent_until = greatest(spent_until, {now}) + claimed.number * step * interval '1 microsecond'
    from (select count(*) as number from claimed) as claimed
    where claimed.number > 0
)"""
# What claims of groups with limits note: see `create_stripes` and `create_group_rates`.
COUNTED = """counted as (
    update {stripes}
    set claims = claims + 1
    where stripe = any(array(select cast(slot & {last_stripe} as integer) from claimed))
)"""
PAID = """paid as (
    insert into {group_rates} as paid (slot, spent_until)
    select slot, {now} + count(*) * {group_step} * interval '1 microsecond'
    from claimed
    group by slot
    on conflict (slot) do update
    set spent_until = greatest(paid.spent_until, {now}) + (excluded.spent_until - {now})
)"""
# The microseconds until all tokens are there again, and the seconds until there is one.
MISSING = "greatest(0, extract(epoch from spent_until - {now}) * 1000000)"
UNTIL_TOKEN = f"cast(greatest(0, {MISSING} - (burst - 1) * step) / 1000000 as float8)"


def limit_words(definition: Definition, words: Mapping[str, str]) -> dict[str, str]:
    """Return the words of the claims of a queue with limits."""
    if not definition.limited:
        return {}
    missing = MISSING.format(**words)
    words = {**words, "tokens": f"greatest(0, floor(burst - {missing} / step))"}
    permits, most, notes = [], [":n"], []
    if definition.rate is not None:
        permits.append(TOKENS)
        most.append("coalesce((select tokens from bucket), 0)")
        notes.append(SPENT)
    if definition.group_rate is not None:
        notes += [COUNTED, PAID]
    removable, removed = most[:], notes[:]
    if definition.concurrency is not None:
        permits.append(PLACES)
        most.append("(select count(*) from place)")
        notes.append(NOTED)
    if definition.group_rate is None and definition.per_group is not None:
        notes.append(COUNTED)
    return {
        "permits": "".join(f"{permit}, " for permit in permits).format(**words),
        "claim_limit": _least(most),
        "noted": ", ".join(notes).format(**words),
        # What a claim returns: see PostgreSQLMessages._claimed.
        "of_claimed": f"id{', slot' if definition.fair else ''}" if definition.contended else "*",
        # The same for a take, after which no message is in progress.
        "bucket": f"{TOKENS}, ".format(**words) if definition.rate is not None else "",
        "take_limit": _least(removable),
        "spent": ", ".join(removed).format(**words),
    }


def _least(numbers: Sequence[str]) -> str:
    return numbers[0] if len(numbers) == 1 else f"least({', '.join(numbers)})"
