"""Calls in a caller's transaction, which lock only what they act on.

At REPEATABLE READ, the default, a plain read returns the past. A locking read by id locks the newest row, at READ
COMMITTED too: if that does not match, because another consumer has claimed or finished the message meanwhile, the lock
stays until the transaction ends. InnoDB gives back no lock alone, not by ROLLBACK TO SAVEPOINT either. So before a call
locks anything, it looks at the newest rows on a connection of our own. Between the look and the lock nobody can claim
the messages to claim: that connection has locked their entries in the index by which all claims find them. It has not
locked the rows, so the caller's transaction can. If a row has changed in spite of that, the call is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pymysql
from pymysql.constants import ER

from tablequeue.engines.connection import Cursor
from tablequeue.engines.fair import in_turn
from tablequeue.engines.mysql.fair import found, groups_of, rooms_of, within_room
from tablequeue.engines.mysql.packets import kept, put, sent, without_lock
from tablequeue.engines.mysql.refusals import number_of
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.errors import BadInput, Conflict
from tablequeue.model.message import ID

SERIALIZABLE, READ_COMMITTED = "SERIALIZABLE", "READ-COMMITTED"
# The errors of NOWAIT: MariaDB's is that of a lock wait time-out.
LOCKED = (ER.LOCK_WAIT_TIMEOUT, 3572)
# A claim of n messages in a caller's transaction looks at 2 n + LOOK messages: others may have locked the first ones.
LOOK = 32
# The sort keys of the rows that `candidates` returns. In other orders they sort by id, the first column.
FOUND: Mapping[str, Callable[[Row], Any]] = {
    "lifo": lambda row: -row[0],
    "due": lambda row: (row[1], row[0]),
    "priority": lambda row: (-row[2], row[0]),
}


class Offer(NamedTuple):
    """The messages that a caller's transaction may lock, in the order of the queue."""

    rows: Sequence[Row]
    changed: frozenset[int] = frozenset()
    """Those that this transaction has changed itself, or another one that has not ended."""
    more: bool = False
    """Whether there may be others."""


def looks(cursor: Cursor, table: Table) -> bool:
    """Return whether a call looks before it locks: in a caller's transaction, if there is a connection of our own.

    `BadInput` at SERIALIZABLE, where each read locks what it reads, and the gaps between.
    """
    if cursor.beside is None:
        return False
    if _level(cursor, table) == SERIALIZABLE:
        raise BadInput(
            "The transaction of the connection is SERIALIZABLE, where each read locks what others need.",
            "Begin it at READ COMMITTED or REPEATABLE READ, or leave connection= out.",
        )
    return True


def _level(cursor: Cursor, table: Table) -> str:
    if cursor.level is None:
        cursor.execute(table.statement("isolation_level"))
        cursor.level = cursor.fetchone()[0]
    return str(cursor.level)


def conflict() -> Conflict:
    return Conflict(
        "Another transaction has just changed a message that this one has locked.",
        "Roll back this transaction, and run it again.",
    )


# -- what is there -----------------------------------------------------------------------------------------------------


def newest(cursor: Cursor, table: Table, lock: str, params: Params) -> list[Row]:
    """Return what a statement that locks would return now, of the newest rows, without locks; beside the transaction.

    What a transaction has changed counts, also if it has not ended: so it is right for the changes of the caller's.
    """
    return _looked(cursor, table, lock, params)[1]


def settled(cursor: Cursor, table: Table, lock: str, params: Params) -> list[Row]:
    """As `newest`, but only rows that are committed too.

    So what this transaction has changed counts, and what another one has changed and may yet roll back does not.
    """
    before, after = _looked(cursor, table, lock, params)
    return [row for row in after if row in before]


def lock_held(cursor: Cursor, table: Table, lock: str, params: Params) -> list[Row]:
    """Lock what a statement locks by `ids` or an `id`, if it matches by now. Return its rows.

    What another transaction has changed and may yet roll back is waited for on a connection of our own. Without such a
    connection, the look is in the caller's transaction, if that does not return the past.
    """
    while looks(cursor, table):
        before, after = _looked(cursor, table, lock, params)
        there = [row[0] for row in after]
        still_there = {*there}
        ending = [row[0] for row in before if row[0] not in still_there] if "ids" in params else []
        if not ending or not _is_locked_by_others(cursor, lock, only(params, table, ending)):
            break
        with cursor.beside(_selected, table, {**only(params, table, ending), "statement": lock}):
            pass
    else:
        cursor.execute(without_lock(lock) if _level(cursor, table) == READ_COMMITTED else lock, params)
        there = [row[0] for row in cursor.fetchall()]
    if not there:
        return []
    if "ids" in params:
        params = only(params, table, there)
    cursor.execute(lock, params)
    rows = list(cursor.fetchall())
    if len(rows) < len(there) and cursor.beside is not None:
        _check_foreign(cursor, table, params, {*there}.difference(row[0] for row in rows))
    return rows


def _check_foreign(cursor: Cursor, table: Table, params: Params, ids: Iterable[int]) -> None:
    """Refuse a call that has locked messages which are there still, and are not held under its token."""
    foreign: Params = {"token": params.get("token") or "", "ids": table.engine.dump_ids([*ids])}
    if newest(cursor, table, table.statement("claim_find.foreign"), foreign):
        raise conflict()


def _is_locked_by_others(cursor: Cursor, lock: str, params: Params) -> bool:
    """Return whether another transaction has changed the messages; else this one has."""
    try:
        cursor.execute(f"{lock} nowait", params)
    except pymysql.Error as error:
        if number_of(error) in LOCKED:
            return True
        raise
    return False


def _looked(cursor: Cursor, table: Table, lock: str, params: Params) -> tuple[Sequence[Row], list[Row]]:
    """Return what a statement would lock by what is committed, and by the newest rows."""

    def look(cursor: Cursor, table: Table, params: Params) -> tuple[Sequence[Row], list[Row]]:
        statement = without_lock(lock)
        before, after = sent(cursor, params, [statement, *DIRTY, statement, "commit"])
        return before, list(after)

    with cursor.beside(look, table, params) as rows:
        looked: tuple[Sequence[Row], list[Row]] = rows
    return looked


def _selected(cursor: Cursor, table: Table, params: Any) -> None:
    """Lock messages for a moment: wait for those who have changed them."""
    cursor.execute(params["statement"], params)
    cursor.fetchall()


def only(params: Params, table: Table, ids: Sequence[int]) -> Params:
    """Return the parameters for some of the messages."""
    params = params | {"ids": table.engine.dump_ids(ids)}
    if "delays" in params:
        delays = {id: delay for id, delay in json.loads(params["delays"]) if id in {*ids}}
        params |= table.engine.failing(delays)
    return params


DIRTY = ("set transaction isolation level read uncommitted", "begin")
"""What begins a transaction of a connection of ours that reads the newest rows."""


# -- what may be claimed -----------------------------------------------------------------------------------------------


def candidates(cursor: Cursor, table: Table, params: Params, n: int) -> list[Row]:
    """Return ready messages, without locks: `n` in the order of the queue, and some more.

    As (id, due_at, priority); of a fair queue as its `found`.
    """
    if table.definition.fair:
        return found(cursor, table, params | {"n": n})
    cursor.execute(table.statement("claim_find.find"), params | {"low_water": 0, "look": 2 * n + LOOK})
    return list(cursor.fetchall())


@contextmanager
def offered(cursor: Cursor, table: Table, params: Params, n: int) -> Iterator[Offer]:
    """Return up to `n` messages to lock, and keep them ready until the end of the block."""
    within = candidates(cursor, table, params, n)
    if not looks(cursor, table):
        yield Offer(_in_order(table, within), more=len(within) > n)
        return
    with cursor.beside(_pinned, table, params | {"n": n, "rows": within}) as offer:
        if offer.rows and not within:
            cursor.execute(table.statement("paused"), params)
            if cursor.fetchall():  # this transaction has paused the queue: only it can see that
                offer = Offer([])
        yield offer


def lock(cursor: Cursor, table: Table, params: Params, offer: Offer) -> list[Row]:
    """Lock up to `n` of the messages that are offered, in their order. Return them as CLAIMED.

    With limits for each group, lock the stripes of the groups too, and count the claim in these.
    """
    if not table.definition.group_limited:
        return _lock(cursor, table, params, offer)
    groups: Params = {"by_group": groups_of(offer.rows)}
    if looks(cursor, table):
        cursor.execute(table.statement("lock_seen_stripes"), groups)
        stripes = list(cursor.fetchall())
        if not all(seen for *_, seen in stripes):
            raise conflict()
    else:
        cursor.execute(table.statement("lock_stripes"), groups)
        stripes = list(cursor.fetchall())
    held = {(row[0], row[1]) for row in stripes}
    rows = _lock(cursor, table, params, offer._replace(rows=[row for row in offer.rows if (row[-1], row[1]) in held]))
    if rows:
        cursor.execute(table.statement("note_stripes"), {"slots": json.dumps([*{row[-1] for row in rows}])})
    return rows


def locked(cursor: Cursor, table: Table, params: Params) -> list[Row]:
    """Lock up to `n` messages in the order of the queue. Return them as CLAIMED."""
    more = 1
    while True:
        with offered(cursor, table, params, params["n"] * more) as offer:
            rows = lock(cursor, table, params, offer)
        if rows or not offer.more:
            return rows
        more *= 8  # others have locked all of them


def _lock(cursor: Cursor, table: Table, params: Params, offer: Offer) -> list[Row]:
    values = {"lease": None} | params | {"ids": str([row[0] for row in offer.rows])}
    if not offer.changed.isdisjoint(row[0] for row in offer.rows):
        cursor.execute(table.statement("claim_find.still"), values)
        locked = list(cursor.fetchall())
        if not all(ready for _, ready in locked):
            raise conflict()
        values["ids"] = str([id for id, _ in locked])
    cursor.execute(table.statement("claim_find.read"), values)
    rows = list(cursor.fetchall())
    if cursor.beside is None and not cursor.ours:
        _check_passed_over(cursor, table, params, [row[0] for row in offer.rows], [row[ID] for row in rows])
    return rows


def _check_passed_over(cursor: Cursor, table: Table, params: Params, ids: Sequence[int], locked: Sequence[int]) -> None:
    """Refuse a claim that has locked messages which others have claimed since the snapshot of the transaction."""
    visited = ids[: ids.index(locked[-1])] if len(locked) == params["n"] else ids
    taken = {*locked}
    passed = [id for id in visited if id not in taken]
    if passed and _level(cursor, table) != READ_COMMITTED:
        cursor.execute(table.statement("claim_find.still"), params | {"ids": str(passed), "n": len(passed)})
        if not all(ready for _, ready in cursor.fetchall()):
            raise conflict()


def _pinned(cursor: Cursor, table: Table, params: Params) -> Offer:
    """Lock the index entries of up to `n` messages, in a transaction that stays open. `rows` are the `candidates`.

    Offer them, and those of `rows` that may have been changed by the caller's transaction, which alone can lock them.
    """
    n, within = params["n"], params["rows"]
    begin = [table.statement("paused"), *DIRTY]
    outside: list[Row] = []
    first: Sequence[Sequence[Row]] = ()
    if table.definition.fair:
        # Of the newest rows: a message that the caller's transaction has claimed has no turn any more.
        first, begin = sent(cursor, params, begin), []
        outside = _in_order(table, candidates(cursor, table, params, n))
    slots = json.dumps([[row[0], row[-1]] for row in outside])
    ids = {row[0]: row for row in within}
    packet = [
        *begin,
        kept(table.statement("claim_find.pin")),
        "select @tq_n",
        put(table.statement("claim_find.pinned"), ids="coalesce(@tq_ids, '[]')"),
        table.statement("claim_find.newest"),
    ]
    answers: list[Any] = [*first, *sent(cursor, params | {"rows": slots, "ids": str([*ids])}, packet)]
    paused, ((number,),), pinned, ready = answers
    if paused:
        return Offer([])
    if table.definition.fair:
        there = {row[0] for row in pinned}
        pinned = [row for row in outside if row[0] in there]
    pinned = _in_order(table, pinned)
    left = [ids[id] for (id,) in ready if id not in {row[0] for row in pinned}]
    key = FOUND.get(table.definition.order, _id)
    if not table.definition.fair and len(pinned) == n:
        left = [row for row in left if key(row) < key(pinned[-1])]
    if left:
        cursor.execute(table.statement("claim_find.unlocked"), {"ids": str([row[0] for row in left])})
        unlocked = {id for (id,) in cursor.fetchall()}
        left = [row for row in left if row[0] not in unlocked]
    changed = frozenset(row[0] for row in left)
    rows = [*pinned, *left]
    if table.definition.group_limited:
        rows = _with_newest_room(cursor, table, params, rows)
    return Offer(_in_order(table, rows), changed, number == n)


def _with_newest_room(cursor: Cursor, table: Table, params: Params, rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the newest number of claims of their stripe, and the room that groups have by all counts.

    The newest rows count what the caller's transaction has claimed, and those before what another one is finishing.
    """
    slots = [*dict.fromkeys(row[-1] for row in rows)]
    rooms = {slot: (claims, int(room)) for slot, claims, room, _ in rooms_of(cursor, table, params, slots)}
    return [(id, rooms[slot][0], min(room, rooms[slot][1]), slot) for id, _, room, slot in rows]


def _in_order(table: Table, rows: Sequence[Row]) -> list[Row]:
    if table.definition.fair:
        return in_turn(within_room(rows) if table.definition.group_limited else rows, table.ring.served)
    return sorted(rows, key=FOUND.get(table.definition.order, _id))


def _id(row: Row) -> int:
    return int(row[0])
