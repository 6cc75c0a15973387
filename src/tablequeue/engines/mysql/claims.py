"""Claims on connections of our own: one packet, which locks messages, marks them, commits, and then reads them.

Limits are counted in the same packet. So a consumer that is suspended, or reads slowly, holds up no other one: see
packets.py. A claim in a caller's transaction is several round trips: see messages.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from tablequeue.engines.connection import Cursor
from tablequeue.engines.limits import steps_of_limits
from tablequeue.engines.mysql.fair import SPARE, found, groups_and_wanted
from tablequeue.engines.mysql.limits import LOOK
from tablequeue.engines.mysql.packets import kept, limited, put, stored, together
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
    """What a packet has completed before its claim. Nothing is claimed if that is not all of the call's messages."""

    done: list[int] | None = None
    """The ids that were completed; None: not yet."""
    ending: set[int] = field(default_factory=set)
    """The batches that may have ended by it."""

    def take_effect(self, ids: str | None, ending: str | None) -> None:
        """Note what was completed, from the variables of the packet."""
        self.done = json.loads(ids or "[]")
        self.ending = {batch for batch in json.loads(ending or "[]") if batch is not None}


def claimed(
    cursor: Cursor, table: Table, params: Params, operation: str, completion: Completion | None = None
) -> list[Row]:
    """Claim up to `n` messages by the changes of an operation, and complete others before, if there is a `completion`.

    These are the `number` messages `ids` under the token `held`.
    """
    return table.bound(_claiming, operation)(cursor, table, params, operation, completion)


def _claiming(table: Table, operation: str) -> Callable[[Cursor, Table, Params, str, Completion | None], list[Row]]:
    if operation == "claim_run" or not table.definition.fair:
        return _claimed_in_order
    return _claimed_of_group if operation in LOCKS else _claimed_in_turn


def _claimed_in_order(
    cursor: Cursor, table: Table, params: Params, operation: str, completion: Completion | None
) -> list[Row]:
    return table.in_order(_run(cursor, table, params, operation, completion))


def _claimed_of_group(
    cursor: Cursor, table: Table, params: Params, operation: str, completion: Completion | None
) -> list[Row]:
    return sorted((row[:-1] for row in _run(cursor, table, params, operation, completion)), key=_id)


def _claimed_in_turn(
    cursor: Cursor, table: Table, params: Params, operation: str, completion: Completion | None
) -> list[Row]:
    """Claim messages of a fair queue that were found without locks, in the order of the turns."""
    more, n = 1, params["n"]
    params = params | {"removes": operation == "take"}
    while True:
        rows = found(cursor, table, params | {"n": n * more})
        within_rooms = "group_limited" in table.plan.met
        if within_rooms:
            groups, wanted = groups_and_wanted(table, rows)
            values: Params = {"by_group": groups, "rows": wanted}
        else:
            values = {"rows": str([row[0] for row in rows])}
        got = _run(cursor, table, params | values, operation, completion)
        if got or completion is not None or within_rooms or len(rows) < n * more + SPARE:
            return got
        more *= 8  # others have locked all of them


def _run(cursor: Cursor, table: Table, params: Params, operation: str, completion: Completion | None) -> list[Row]:
    """Run the packet. Return the messages."""
    packet = table.bound(_packet, operation, completion is not None)
    answers = together(cursor, params | {"look": 2 * params["n"] + LOOK}, *packet)
    if completion is not None:
        completion.take_effect(*answers[0][0])
    return list(answers[-1])


def _packet(table: Table, operation: str, completes: bool) -> tuple[list[str], list[str]]:
    """Return the statements of a claim, within the limits of the queue, and those that read it after the commit.

    First how many messages may be claimed, which is @tq_n, and the time @tq_now. Then their ids are @tq_ids, and their
    number is @tq_n. A message that a take removes is in progress no more: it needs no place.
    """
    steps = table.bound(steps_of_limits)
    places = "lock_slots" in steps and operation != "take"
    limited_claim = "unlimited" not in table.plan.met
    inside = _completing(table) if completes else []

    def add(step: str, **names: str) -> None:
        inside.extend(put(one, **names) for one in table.statements(step))

    add("claim_limit", **({"n": "if(@tq_first, %(n)s, 0)"} if completes else {}))
    if "grant_rate" in steps:
        grant = table.statement("grant_rate")
        inside.append(stored(grant, tq_n="cast(least(@tq_n, tokens) as signed)", tq_now="clock"))
    if places:
        lock = put(table.statement("lock_slots"), slots="@tq_free", n="?")
        inside.append(stored(table.statement("free_slots"), tq_free="json_arrayagg(json_array(slot, message, token))"))
        inside += limited(stored(lock, tq_slots="json_arrayagg(slot)", tq_n="count(*)"))
    if operation == "claim_run":
        add("claim_run.find", now="@tq_now")
    else:
        counted = completes or limited_claim
        inside += _locking(table, operation, counted)
    if limited_claim:
        add("claim_counts")
    for change in table.statements(CHANGES.get(operation, f"{operation}.change")):
        inside.append(put(change, **NAMES))
    counts = {"note_slots": places, "note_stripes": "group_limited" in table.plan.met}
    for step in ("note_slots", "note_stripes", "spend_rate", "spend_group_rates"):
        if counts.get(step, step in steps):
            add(step, **NAMES)
    return inside, [put(one, **NAMES) for one in table.statements("claimed")]


def _completing(table: Table) -> list[str]:
    """Return what completes the messages `ids` under `held`, before a claim, and tells which these were."""
    tells = {"tq_ending": "json_arrayagg(ending)"} if "batches" in table.plan.met else {}
    return [
        put(kept(table.statement("complete.lock"), **tells), token="%(held)s"),
        *(put(one, ids="@tq_ids", token="%(held)s") for one in table.statements("complete.change")),
        f"select @tq_ids, {'@tq_ending' if tells else 'null'}",
        "set @tq_first = @tq_n = %(number)s",
    ]


def _locking(table: Table, operation: str, counted: bool) -> list[str]:
    """Return what locks the messages of a claim: up to @tq_n of them, if they are `counted`."""
    before, names = [], {"now": "@tq_now"}
    statement = LOCKS.get(operation, "claim_many.lock")
    if table.definition.fair and operation not in LOCKS:
        statement, names["ids"] = "claim_find.lock", "@tq_found" if counted else "%(rows)s"
        if "group_limited" in table.plan.met:
            before = [stored(table.statement("lock_stripes"), tq_held="json_arrayagg(slot)")]
            before += table.statements("claim_held")
        elif counted:
            before = ["set @tq_found = %(rows)s"]
    lock = table.statement(statement)
    return [*before, *(limited(kept(put(lock, **names, n="?"))) if counted else [kept(put(lock, **names))])]


def _id(row: Row) -> int:
    return int(row[ID])
