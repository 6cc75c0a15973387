"""Claims on connections of our own: one packet, which locks messages, marks them, commits, and then reads them.

Limits are counted in the same packet. So a consumer that is suspended, or reads slowly, holds up no other one: see
packets.py. A claim in a caller's transaction is several round trips: see messages.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.fair import SPARE, found, groups_and_wanted
from tablequeue.engines.mysql.limits import LOOK
from tablequeue.engines.mysql.packets import bound, kept, limited, stored, together
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.model.message import ID

# The statements of claims of one group of a fair queue, in place of `claim_many.lock` and those of the operation.
LOCKS = {"claim_group": "claim_group.lock", "claim_alone": "claim_alone"}
CHANGES = {"claim_alone": "claim_many.change"}
# The variables that stand for parameters once the messages are locked.
NOW = "cast(@tq_now as datetime(6))"
NAMES = {
    "ids": "@tq_ids",
    "now": "@tq_now",
    "popped_at": NOW,
    "lease_until": f"{NOW} + interval %(lease)s second",
    "slots": "@tq_stripes",
    "places": "@tq_places",
    "by_group": "@tq_groups",
    "number": "@tq_n",
}


@dataclass
class Completion:
    """What completes messages before a claim, in its packet. Nothing is claimed if they are fewer than `number`."""

    statements: Sequence[str]
    """They complete the messages @tq_ids, of which there are @tq_n."""
    number: int
    tells: str = "null"
    """The variable with the batches that may end, as JSON; or null."""
    done: list[int] | None = None
    """The ids that were completed; None: not yet."""
    ending: set[int] = field(default_factory=set)
    """The batches that may have ended by it."""

    def take_effect(self, ids: str | None, ending: str | None) -> None:
        """Note what was completed, from the variables of the packet."""
        self.done = json.loads(ids or "[]")
        self.ending = {batch for batch in json.loads(ending or "[]") if batch is not None}


class Packet:
    """The statements of a claim, within the limits of the queue."""

    def __init__(
        self, cursor: Cursor, table: Table, params: Params, before: Completion | None = None, *, removes: bool = False
    ) -> None:
        """Begin with how many messages may be claimed, which is @tq_n, and with the time @tq_now.

        removes   whether the messages are in progress no more after the claim: then they need no place.
        """
        self.cursor, self.table, self.params, self.before = cursor, table, params, before
        definition = table.definition
        self.places = definition.concurrency is not None and not removes
        self.counted = definition.limited or before is not None
        self.inside: list[str] = []
        if before is not None:
            done = f"select @tq_ids, {before.tells}"
            self.inside += [*before.statements, done, f"set @tq_first = @tq_n = {before.number:d}"]
        self.add("claim_limit", n="if(@tq_first, %(n)s, 0)" if before is not None else "%(n)s")
        if definition.rate is not None:
            grant = bound(cursor, table.statement("grant_rate"), params)
            self.inside.append(stored(grant, tq_n="cast(least(@tq_n, tokens) as signed)", tq_now="clock"))
        if self.places:
            look: Params = {"look": 2 * params["n"] + LOOK}
            free = bound(cursor, table.statement("free_slots"), look)
            lock = bound(cursor, table.statement("lock_slots"), params, slots="@tq_free", n="?")
            self.inside.append(stored(free, tq_free="json_arrayagg(json_array(slot, message, token))"))
            self.inside += limited(cursor, stored(lock, tq_slots="json_arrayagg(slot)", tq_n="count(*)"))

    def add(self, operation: str, **names: str) -> None:
        self.inside += [bound(self.cursor, one, self.params, **names) for one in self.table.statements(operation)]

    def lock(self, statement: str, **names: str) -> None:
        """Lock up to @tq_n messages. Then their ids are @tq_ids, and their number is @tq_n."""
        names["now"] = "@tq_now"
        if self.counted:
            self.inside += limited(self.cursor, kept(bound(self.cursor, statement, self.params, **names, n="?")))
        else:
            self.inside.append(kept(bound(self.cursor, statement, self.params, **names)))

    def run(self, changes: Sequence[str]) -> list[Row]:
        """Make the changes, count them for the limits, and commit. Return the messages."""
        definition = self.table.definition
        if definition.limited:
            self.add("claim_counts")
        self.inside += [bound(self.cursor, change, self.params, **NAMES) for change in changes]
        counts = {
            "note_slots": self.places,
            "note_stripes": definition.group_limited,
            "spend_rate": definition.rate is not None,
            "spend_group_rates": definition.group_rate is not None,
        }
        for operation in counts:
            if counts[operation]:
                self.add(operation, **NAMES)
        read = [bound(self.cursor, one, self.params, **NAMES) for one in self.table.statements("claimed")]
        answers = together(self.cursor, self.inside, read)
        if self.before is not None:
            self.before.take_effect(*answers[0][0])
        return list(answers[-1])


def claimed(
    cursor: Cursor,
    table: Table,
    params: Params,
    operation: str,
    before: Completion | None = None,
    *,
    removes: bool = False,
) -> list[Row]:
    """Claim up to `n` messages by the changes of an operation. `before` as in Packet."""
    lock = table.statement(LOCKS.get(operation, "claim_many.lock"))
    changes = table.statements(CHANGES.get(operation, f"{operation}.change"))
    if table.definition.fair and operation not in LOCKS:
        return _claimed_in_turn(cursor, table, params | {"removes": removes}, before, changes)
    packet = Packet(cursor, table, params, before, removes=removes)
    packet.lock(lock)
    rows = packet.run(changes)
    if table.definition.fair:
        return sorted((row[:-1] for row in rows), key=_id)  # of one group
    return table.in_order(rows)


def claimed_run(cursor: Cursor, table: Table, params: Params) -> list[Row]:
    """Claim up to `n` messages of the group whose head comes first."""
    packet = Packet(cursor, table, params)
    packet.inside += [bound(cursor, one, params, now="@tq_now") for one in table.statements("claim_run.find")]
    return sorted(packet.run(table.statements("claim_run.change")), key=_id)


def _claimed_in_turn(
    cursor: Cursor, table: Table, params: Params, before: Completion | None, changes: Sequence[str]
) -> list[Row]:
    """Claim messages of a fair queue that were found without locks, in the order of the turns."""
    lock = table.statement("claim_find.lock")
    within_rooms = table.definition.group_limited
    more = 1
    while True:
        rows = found(cursor, table, params | {"n": params["n"] * more})
        packet = Packet(cursor, table, params, before, removes=params["removes"])
        if within_rooms:
            groups, wanted = groups_and_wanted(table, rows)
            stripes = bound(cursor, table.statement("lock_stripes"), {"by_group": groups})
            packet.inside.append(stored(stripes, tq_held="json_arrayagg(slot)"))
            packet.inside += [bound(cursor, one, {"rows": wanted}) for one in table.statements("claim_held")]
            packet.lock(lock, ids="@tq_found")
        else:
            ids = bound(cursor, "%(ids)s", {"ids": str([row[0] for row in rows])})
            if packet.counted:
                packet.inside.append(f"set @tq_found = {ids}")
            packet.lock(lock, ids="@tq_found" if packet.counted else ids)
        got = packet.run(changes)
        if got or before is not None or within_rooms or len(rows) < params["n"] * more + SPARE:
            return got
        more *= 8  # others have locked all of them


def _id(row: Row) -> int:
    return int(row[ID])
