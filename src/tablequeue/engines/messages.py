"""The operations that push, claim, finish and maintain messages.

An engine overrides the operations that need more than one text. Over 400 lines, because each operation of one part
has its declaration beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import ClassVar

from tablequeue.engines.connection import Cursor
from tablequeue.engines.fair import Fair
from tablequeue.engines.keys import Keys
from tablequeue.engines.limits import GRANTED, SPENT
from tablequeue.engines.low_water import Claim
from tablequeue.engines.operation import (
    Effect,
    by_text,
    count,
    first,
    ids,
    mapping,
    none,
    operation,
    rowcount,
)
from tablequeue.engines.params import Params
from tablequeue.engines.rows import Done
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.engines.walks import LATE_SECONDS

# The error of an attempt whose lease has expired, as a sweep writes it.
EXPIRED = "lease expired"
# What a claim of a fair queue runs before and after it: it learns and notes the group that was served last. On most
# engines Python does, and the texts are only printed.
BEGUN, SERVED = {"begin_ring": "fair"}, {"move_ring": "fair"}
# What detaches messages from a range.
DETACH = dict.fromkeys(("range_hold", "range_detach", "range_mark"), "ranges")


class Messages(Keys):
    fair: ClassVar[Fair] = Fair()

    # -- pushing -----------------------------------------------------------------------------------------------------

    @operation(Effect.WRITE, {"push": "queue", "topic_push": "topic"}, "push_clock push_rows")
    def push(self, cursor: Cursor, table: Table, params: Params) -> int | None:
        """Push one message. Return its id, or None if a live message has its key."""
        rows = self._rows(cursor, table, "push", params)
        return rows[0][0] if rows else None

    @operation(
        Effect.WRITE,
        {"push_many": "queue", "topic_push_many": "topic"},
        others="push_reserve push_copy push_clock push_rows topic_push_rows topic_reserve topic_copy",
    )
    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Push all of `params["payloads"]` with the same options. Return the ids, in the same order."""
        raise NotImplementedError

    @operation(
        Effect.STEP,
        {"push_each": "queue", "topic_push_each": "topic"},
        others="push_clock push_rows topic_push_rows push_keys note_live_keys",
    )
    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        """Push each of `params["rows"]`, which have options of their own.

        Return the ids in the same order; None for a message whose key is taken.
        """
        raise NotImplementedError

    @operation(Effect.STEP, others="attend leave send_notification wait_for_notification")
    def notify(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Notify waiting consumers of what another statement did, if the database can do it: the others look soon.

        For an operation in a caller's transaction, see `Table.notifies_apart`. `within` of `params`: whether that
        transaction is still open; if not given, whether the cursor is the caller's.
        """

    @operation(Effect.STEP)
    def move(self, cursor: Cursor, table: Table, params: Params) -> tuple[list[int], list[int]]:
        """Move those of `ids` that no consumer holds from `table.source` to this queue, with all that they have.

        Return their old ids and their new ones, both sorted: the same order. If there are fewer new ones, messages of
        this queue have the keys of others, and the caller must roll back.
        """
        cursor.execute(table.statement("move.find"), params)
        old = [row[0] for row in cursor.fetchall()]
        moved = {**params, "ids": table.engine.dump_ids(old)}
        cursor.execute(table.statement("move.insert"), moved)
        new = sorted(row[0] for row in cursor.fetchall())
        cursor.execute(table.statement("move.delete"), moved)
        return old, new

    # -- claiming ----------------------------------------------------------------------------------------------------

    @operation(
        Effect.WRITE,
        {
            **BEGUN,
            **GRANTED,
            "claim": "at_least_once",
            "take": "at_most_once",
            "range_claim": "ranges",
            "read_claimed": "contended at_least_once",
            "read_taken": "contended at_most_once",
            **SPENT,
            **SERVED,
        },
        others="claim_find claim_many claim_ring claim_alone claim_rooms find_in_turn lock_stripes note_stripes "
        "free_slots claim_held claim_counts isolation_level lock_seen_slots lock_seen_stripes",
        printed="pop",
    )
    def claim(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Claim up to `n` messages. Return them in the order of the queue, as CLAIMED."""
        claim = table.bound(self._in_order, self._claim)
        if not table.ring.claims:
            return claim(cursor, table, params)
        alone = self.fair.claimed_alone(self._claim_alone, cursor, table, params)
        if len(alone) == params["n"]:
            return alone
        return [*alone, *claim(cursor, table, {**params, "n": params["n"] - len(alone)})]

    @operation(
        Effect.WRITE, {**GRANTED, "claim_limit": "", "claim_run": "", "claimed": "", **SPENT}, printed="pop_same_group"
    )
    def claim_run(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Claim up to `n` messages of the group whose head comes first. Return them in order of ids, as CLAIMED.

        The queue has ordered groups.
        """
        return self._claimed(cursor, table, "claim_run", params)

    @operation(Effect.WRITE, {"claim_group": "", "claimed": ""}, printed="pop_group")
    def claim_group(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Claim up to `n` messages of the group `group`. Return them in order of ids, as CLAIMED.

        The queue has fair groups, and no limits.
        """
        return self._claimed(cursor, table, "claim_group", params)

    @operation(
        Effect.WRITE,
        {**BEGUN, "grant_rate": "rate", "take": "queue", "spend_rate": "rate", "spend_group_rates": "group_rate"}
        | SERVED,
    )
    def take(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Move up to `n` messages to the history: finished, or under a `token` by which they are completed later.

        Return them as CLAIMED.
        """
        return table.bound(self._in_order, self._take)(cursor, table, params)

    @operation(Effect.STEP, {"complete_and_claim": "unlimited"})
    def complete_and_claim(self, cursor: Cursor, table: Table, params: Params) -> Done:
        """Complete the `number` messages `ids`, held under `held`; if that was all of them, claim up to `n` messages.

        The queue has no groups, and its messages have leases. Return the ids that were completed (None: all of them),
        and the claimed rows; None if the claim must be a transaction of its own, because others would wait for it.
        """
        completed = self.complete(cursor, table, params | {"token": params["held"]})
        if len(completed) < params["number"]:
            return completed, []
        return None, self.claim(cursor, table, params)

    @operation(
        Effect.UPKEEP,
        {
            "range_due": "ranges",
            "range_expired": "ranges",
            "range_expire": "ranges",
            "sweep": "",
            "move_dead": "dead_letter_to",
        },
    )
    def sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Make messages ready that are due, and messages ready or dead whose lease expired: up to `n` of each kind.

        Return their number.
        """
        walks, began = table.walks, monotonic()
        whole = params["now"] is not None or walks.sweeps.allows
        with self._moving(cursor, table):
            moved = self._sweep(cursor, table, params | {"since_sweep": None if whole else walks.since_sweep})
            self._move_dead(cursor, table, params, moved)
        if params["now"] is None:
            walks.sweeps.took(began, len(moved), whole=whole)
            if len(moved) < params["n"] and (whole or monotonic() - began < LATE_SECONDS):
                walks.swept_at = began
        table.ready_after(min([table.lowest, *(id - 1 for id in moved)]))
        return len(moved)

    @operation(Effect.UPKEEP, {"expire": "", "move_dead": "none dead_letter_to"})
    def expire(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Move up to `n` waiting messages whose time is over to the history; without one they become dead letters.

        The messages of the queue expire. Return their number.
        """
        if table.definition.keeps_history:
            return len(self._outdated(cursor, table, params))
        with self._moving(cursor, table):
            dead = self._outdated(cursor, table, params)
            self._move_dead(cursor, table, params, dead)
        return len(dead)

    promote = by_text(Effect.UPKEEP, count)
    """Promote the first blocked message of up to `n` groups that have no head. Return the number of groups."""
    close_slots = by_text(Effect.UPKEEP, none)
    """Have all messages in progress count for the limit of the queue: also those that were claimed without it."""

    # -- finishing ---------------------------------------------------------------------------------------------------

    @operation(
        Effect.WRITE,
        {"range_complete": "ranges", "complete": "at_least_once", "complete_at_most_once": "at_most_once"},
        others="range_id",
    )
    def complete(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Complete the messages among `ids` that are held under `token`. Return their ids."""
        return self._finished(cursor, table, table.bound(_finishing, "complete"), params)

    @operation(Effect.STEP)
    def complete_stream(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Complete the messages `ids`, which are all that a stream holds under `token`, without a lease."""
        self.complete(cursor, table, params)

    @operation(
        Effect.WRITE,
        {**DETACH, "fail": "at_least_once", "fail_at_most_once": "at_most_once", "move_dead": "dead_letter_to"},
        others="fail_state",
        several=True,
    )
    def fail(self, cursor: Cursor, table: Table, params: Params) -> dict[int, str]:
        """Fail the attempts on the messages among `ids` that are held under `token`. Return their ids and new states.

        Each message is scheduled again, or becomes a dead letter. One that was told to stop ends.
        """
        with self._moving(cursor, table):
            states = self._fail(cursor, table, params)
            self._move_dead(cursor, table, params, [id for id, state in states.items() if state == "dead"])
        _ready_again(table, [id for id, state in states.items() if state == "ready"])
        if len(states) < len({*table.engine.load_ids(params["ids"])}):
            states |= dict.fromkeys(self.cancel_held(cursor, table, params), "cancelled")
        return states

    @operation(Effect.WRITE, {**DETACH, "release": ""}, several=True)
    def release(self, cursor: Cursor, table: Table, params: Params) -> dict[int, bool]:
        """Release the messages among `ids` that are held under `token`. Return their ids, each with whether to promote.

        That is so for those that were told to stop, which end, and for those that were in a run of their group.
        """
        released = self._release(cursor, table, params)
        _ready_again(table, [*released])
        if len(released) < len({*table.engine.load_ids(params["ids"])}):
            released |= dict.fromkeys(self.cancel_held(cursor, table, {**params, "error": None}), True)
        return released

    extend = by_text(Effect.UPKEEP, mapping, texts={"range_extend": "ranges", "extend": ""}, several=True)
    """Extend the leases on the messages among `ids` that are held under `token`. Return their ids and new ends."""

    @operation(Effect.STEP)
    def keep_results(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Keep the results of messages that this transaction has completed: `rows` have their ids and results."""
        cursor.executemany(table.statement("keep_results"), params["rows"])

    @operation(Effect.STEP)
    def notify_results(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Notify those who wait for results when this transaction commits, if the database can do it."""

    # -- changing ----------------------------------------------------------------------------------------------------

    @operation(Effect.WRITE)
    def cancel(self, cursor: Cursor, table: Table, params: Params) -> list[tuple[int, bool]]:
        """Cancel the messages among `ids`: those in progress are told to stop, the others leave the queue.

        Return the ids of both, each with whether it was told.
        """
        rows = [(id, bool(told)) for id, told in self._rows(cursor, table, "cancel.find", params)]
        if rows:
            self._run(cursor, table, "cancel.change", params)
        return rows

    @operation(Effect.WRITE)
    def cancel_held(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """End the messages among `ids` that are held under `token` and were told to stop. Return their ids.

        Without a `token`, those whose lease has expired. `error`, if there is one, is kept.
        """
        if table.definition.delivery == "at_most_once":
            return []
        return [row[0] for row in self._rows(cursor, table, "cancel_held", params)]

    @operation(Effect.WRITE)
    def reschedule(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Give message `id`, which waits, another due time or `priority`. Return whether there is such a message."""
        moved = self._reschedule(cursor, table, params)
        if moved:
            table.ready_after(params["id"] - 1)
        return moved

    told = by_text(Effect.READ, ids)
    """Return those of `ids` that are in progress and were told to stop."""
    holder = by_text(Effect.READ, first)
    """Return the token of the lease under which the message `id` is in progress; None if there is none."""

    @operation(Effect.STEP, others="forget")
    def put_back(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Make a message that was taken in this transaction a dead letter."""
        if table.definition.keeps_history:
            self._run(cursor, table, "forget", {"id": params["id"]})
        self._run(cursor, table, "put_back", params)
        self._move_dead(cursor, table, {"now": None}, [params["id"]])

    # -- maintenance -------------------------------------------------------------------------------------------------

    @operation(Effect.WRITE)
    def redrive(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Make up to `n` dead letters with ids above `after` ready, with no attempts made. Return their ids."""
        return _ready_again(table, self._redrive(cursor, table, "redrive", params))

    @operation(Effect.WRITE)
    def redrive_ids(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return _ready_again(table, self._redrive(cursor, table, "redrive_ids", params))

    @operation(Effect.STEP)
    def move_back(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Move the messages among `ids` that wait in the queue for dead letters back. Return their ids there.

        One with a key that another message has stays. `keys` has the keys by id.
        """
        ids = sorted(row[0] for row in self._rows(cursor, table, "move_back.find", {"ids": params["ids"]}))
        keys = {id: params["keys"][id] for id in ids if params["keys"].get(id) is not None}
        taken = {*self.find_keys(cursor, table, {"keys": [*keys.values()]})} if keys else set()
        first = {key: id for id, key in reversed(keys.items()) if key not in taken}
        ids = [id for id in ids if id not in keys or first.get(keys[id]) == id]
        if ids:
            moving: Params = {"ids": table.engine.dump_ids(ids)}
            self._run(cursor, table, "move_back.insert", moving)
            self._run(cursor, table, "move_back.delete", moving)
        return ids

    @operation(Effect.WRITE)
    def purge(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Delete up to `n` messages in `params["state"]`. Return their number."""
        cursor.execute(table.statement("purge", params["state"]), params)
        return cursor.rowcount

    @operation(Effect.WRITE)
    def purge_ids(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Delete the messages among `ids` that are in `params["state"]`. Return their number."""
        cursor.execute(table.statement("purge_ids", params["state"]), params)
        return cursor.rowcount

    purge_history = by_text(Effect.WRITE, rowcount)
    """Delete up to `n` messages that left the queue at least `age` seconds ago. Return their number."""
    purge_history_ids = by_text(Effect.UPKEEP, rowcount)
    """Delete the messages among `ids` that are in the history. Return their number."""

    # -- what engines override; the low-water mark is handled above --------------------------------------------------

    def _in_order(self, table: Table, claim: Claim) -> Claim:
        """Return how a claim of the queue finds the messages whose turn it is."""
        return self.fair.in_order(table, claim)

    def _claim(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self._claimed(cursor, table, "claim", params)

    def _claim_alone(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self._claimed(cursor, table, "claim_alone", params)

    def _take(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self._claimed(cursor, table, "take", params)

    def _claimed(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[Row]:
        rows = self._rows(cursor, table, operation, params)
        return table.in_order(rows) if len(rows) > 1 else rows

    def _sweep(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        rows = self._rows(cursor, table, "sweep", params)
        self._end_expired(cursor, table, params, [id for id, state in rows if state == "in_progress"])
        return [id for id, _ in rows]

    def _end_expired(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> None:
        """End messages that were told to stop, and whose lease has expired."""
        if ids:
            values: Params = {"ids": table.engine.dump_ids(ids), "token": None, "error": EXPIRED}
            self.cancel_held(cursor, table, params | values)

    def _finished(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[int]:
        """Run an operation that finishes messages. Return the ids that were held under `token`."""
        return completed_ids(table, self._rows(cursor, table, operation, params))

    def _release(self, cursor: Cursor, table: Table, params: Params) -> dict[int, bool]:
        return {row[0]: bool(row[1]) for row in self._rows(cursor, table, "release", params)}

    def _fail(self, cursor: Cursor, table: Table, params: Params) -> dict[int, str]:
        return {row[0]: row[1] for row in self._rows(cursor, table, table.bound(_finishing, "fail"), params)}

    def _atomic(self, cursor: Cursor) -> AbstractContextManager[None]:
        """Return what makes several statements one transaction; here the runner has done it."""
        return nullcontext()

    def _moving(self, cursor: Cursor, table: Table) -> AbstractContextManager[None]:
        """Return what makes a failure and the move of the dead letter one transaction; nothing if it does not move."""
        return nullcontext() if table.dead_letters is None else self._atomic(cursor)

    def _move_dead(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> None:
        """Move the dead letters among these messages to the queue that the definition names, if it names one."""
        if ids and table.dead_letters is not None:
            moving: Params = {"ids": table.engine.dump_ids(ids), "origin": table.name, "now": params["now"]}
            self._run(cursor, table, "move_dead", moving)

    def _outdated(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return [row[0] for row in self._rows(cursor, table, "expire", params)]

    def _reschedule(self, cursor: Cursor, table: Table, params: Params) -> bool:
        return bool(self._rows(cursor, table, "reschedule", params))

    def _redrive(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[int]:
        return sorted(row[0] for row in self._rows(cursor, table, operation, params))


def _finishing(table: Table, verb: str) -> str:
    """Return the text of `complete` or `fail`."""
    return f"{verb}_at_most_once" if "at_most_once" in table.plan.met else verb


def completed_ids(table: Table, rows: Sequence[Row]) -> list[int]:
    """Return the ids of completed messages, and note the batches that may end: the second column is {ending}."""
    if table.definition.batches:
        table.ending.update(row[1] for row in rows if row[1] is not None)
    return [row[0] for row in rows]


def _ready_again(table: Table, ids: list[int]) -> list[int]:
    if ids:
        table.ready_after(min(ids) - 1)
    return ids
