"""The operations on a subscription: claims of ranges of its topic's log, and the queue of its detached messages.

A claim is one row for a range of offsets, and its completion is one update of that row. A message that fails, is
released or loses its lease leaves the range: it becomes a row of the subscription's queue, with the operations of
`Messages`. In an ordered subscription all messages go through that queue, so its operations are those of a queue. Of
these here it has the positions, and `pump`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar, cast

from tablequeue.engines.connection import Cursor
from tablequeue.engines.messages import Messages
from tablequeue.engines.operation import Effect, by_text, none, operation, pairs
from tablequeue.engines.params import Params
from tablequeue.engines.range_reads import RangeReads
from tablequeue.engines.rows import Done
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.engines.topics import Topics
from tablequeue.errors import Locked, SeekRefused
from tablequeue.model.pacing import LARGEST

F = TypeVar("F", bound=Callable[..., Any])

# Ranges whose lease has expired that one sweep detaches.
EXPIRED = 10
# Messages of a range that one sweep of an ordered subscription moves to its queue.
PUMPED = 1000


def _of_detached(operation: F, *, may_be_ready: bool = False) -> F:
    """Return an operation of a subscription that is that of its detached messages; then one of them may be ready."""

    def run(self: Ranges, cursor: Cursor, table: Table, params: Params) -> Any:
        table.detached_ready = table.detached_ready or may_be_ready
        return getattr(self.detached, operation.__name__)(cursor, table, params)

    return cast(F, run)


class Ranges(Messages):
    def __init__(self, messages: Messages, topics: Topics, reads: RangeReads) -> None:
        self.detached = messages
        self.topics = topics
        self.reads = reads

    # -- claiming ----------------------------------------------------------------------------------------------------

    def claim(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        if table.detached_ready:
            if rows := self.detached.claim(cursor, table, params):
                return rows
            table.detached_ready = False
        return self._range(cursor, table, params)

    def complete_and_claim(self, cursor: Cursor, table: Table, params: Params) -> Done:
        with self._atomic(cursor):
            return super().complete_and_claim(cursor, table, params)

    def sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Detach the messages of expired ranges; move due messages on.

        Return the number of moves; 1 more if a detached message is ready, so that the next claim looks for it.
        """
        moved = 0
        expired, due, ready = self._row(cursor, table, "range_due", params)
        if expired:
            moved += self.expire_ranges(cursor, table, params)
        if due:
            moved += self.detached.sweep(cursor, table, params)
        moved += bool(ready)
        table.detached_ready = moved > 0
        return moved

    @operation(Effect.WRITE, {"range_pump": ""}, "range_lock range_last range_stay create_range_functions")
    def pump(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Move the next messages of the log to the queue of an ordered subscription. Return their number."""
        with self._atomic(cursor):
            self._run(cursor, table, "range_pump", params | {"n": PUMPED, "token": secrets.token_hex(16)})
            return int(cursor.rowcount)

    # -- finishing ---------------------------------------------------------------------------------------------------

    def complete(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        ids = [*{*table.engine.load_ids(params["ids"])}]  # a message given twice is one
        if self._complete_range(cursor, table, params, ids):
            return ids
        with self._atomic(cursor):
            done = self.detached.complete(cursor, table, params)
            left = [*set(ids).difference(done)] if done else ids
            if not left or (done and self._complete_range(cursor, table, params, left)):
                return ids
            return done + self._leave(cursor, table, params, left)

    def fail(self, cursor: Cursor, table: Table, params: Params) -> dict[int, str]:
        """Fail the attempts. The messages of a range are scheduled again after `delay`, all of them."""
        with self._atomic(cursor):
            ids = table.engine.load_ids(params["ids"])
            left = self._leave(cursor, table, params | {"attempts": 1}, ids)
            states = dict.fromkeys(left, _failed_state(params))
            return states if len(left) == len(ids) else states | self.detached.fail(cursor, table, params)

    def release(self, cursor: Cursor, table: Table, params: Params) -> dict[int, bool]:
        with self._atomic(cursor):
            ids = [*{*table.engine.load_ids(params["ids"])}]
            values: Params = {"attempts": 0, "error": None, "max_attempts": table.definition.max_attempts}
            left = dict.fromkeys(self._leave(cursor, table, params | values, ids), False)
            return left if len(left) == len(ids) else left | self.detached.release(cursor, table, params)

    def extend(self, cursor: Cursor, table: Table, params: Params) -> dict[int, Any]:
        ids = {*table.engine.load_ids(params["ids"])}
        with self._atomic(cursor) if len(ids) > 1 else nullcontext():
            ends = self._extend_ranges(cursor, table, params)
            return ends if len(ends) == len(ids) else ends | self.detached.extend(cursor, table, params)

    # -- changing detached messages ------------------------------------------------------------------------------------

    cancel = _of_detached(Messages.cancel)
    told = _of_detached(Messages.told)
    holder = _of_detached(Messages.holder)
    reschedule = _of_detached(Messages.reschedule, may_be_ready=True)
    redrive = _of_detached(Messages.redrive, may_be_ready=True)
    redrive_ids = _of_detached(Messages.redrive_ids, may_be_ready=True)
    purge = _of_detached(Messages.purge)
    purge_ids = _of_detached(Messages.purge_ids)
    purge_history = _of_detached(Messages.purge_history)

    # -- positions ---------------------------------------------------------------------------------------------------

    @operation(
        Effect.WRITE,
        {"range_seek": "", "range_absorb": ""},
        others="range_wait range_end_leases range_remaining",
    )
    def seek(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Let the next claim begin at the offset `start`; with `to_end`, at the end of the log, if that is later.

        Detached messages that come again, or that no consumer has had, are deleted. Return their number. `SeekRefused`
        if messages are in progress. With `force` their leases end, if they come again. `Locked` if another transaction
        has locked some of them, as a claim does for a moment.
        """
        assert table.topic is not None, "of a subscription"
        with self._atomic(cursor):
            self._lock_claims(cursor, table)
            if params["to_end"]:
                end = self.topics.bounds(cursor, table.topic, {}).end
                params = {**params, "start": max(end, params["start"])}
            self._run(cursor, table, "range_seek", params)
            table.detached_ready = True
            if params["force"]:
                self._end_leases(cursor, table, params)
            deleted = self._absorb(cursor, table, params)
            in_progress = 0 if params["force"] else self.reads.stats(cursor, table, params).in_progress
            if in_progress:
                raise SeekRefused(
                    f"{in_progress} messages of {table.name!r} are in progress.",
                    "Finish them first; or seek with force=True, and those that come again may be delivered twice.",
                )
            if remaining := self._remaining(cursor, table, params):
                raise Locked(
                    f"{remaining} messages or ranges of {table.name!r} are being changed by another transaction.",
                    "Seek again when it has ended.",
                )
            return deleted

    purge_ranges = by_text(Effect.UPKEEP, none, "range_purge")
    """Delete the ranges whose messages all come before the offset `start`, which the log does not have any more."""

    @operation(Effect.READ, {"range_floor": ""})
    def floor(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Return the first offset that the subscription still needs: of a range in progress.

        If the topic keeps what is not `consumed`, also that of the next claim.
        """
        first, position = self._row(cursor, table, "range_floor", params)
        needed = [first] if first is not None else []
        return min([*needed, position] if params["consumed"] else needed, default=LARGEST)

    @operation(Effect.WRITE, {"topic_trim": ""})
    def trim(self, cursor: Cursor, topic: Table, params: Params) -> int:
        """Drop messages of a topic before the offset `start` that no subscription needs. Return how much was dropped.

        `tables` are those of the subscriptions. While nobody can claim or seek, it looks what they need, and drops.
        """
        first = self.topics.bounds(cursor, topic, {}).first
        if first >= self._needed(cursor, params):
            return 0
        with self._atomic(cursor):
            for table in params["tables"]:
                self._lock_claims(cursor, table)
            return self.topics.trim(cursor, topic, {"start": self._needed(cursor, params)})

    @operation(Effect.UPKEEP, others="range_expired range_expire")
    def expire_ranges(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Detach the messages of some ranges whose lease has expired. Return the number of these ranges."""
        with self._atomic(cursor):
            return self._expire(cursor, table, params)

    @operation(Effect.WRITE, {"range_note": ""}, "range_wait")
    def note_position(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Note that a `consumer` which reads the log by itself has finished all messages before the offset `start`.

        Return the number of ranges in progress; if there are any, nothing is noted. A position never goes back.
        """
        with self._atomic(cursor):
            self._lock_claims(cursor, table)
            return self._row(cursor, table, "range_note", params)[0]

    # -- private -----------------------------------------------------------------------------------------------------

    def _lock_claims(self, cursor: Cursor, table: Table) -> None:
        """Let no claim of the subscription run until the transaction ends; here the transaction has done it."""

    def _needed(self, cursor: Cursor, params: Params) -> int:
        """Return the first offset that a topic keeps: `start`, or one before that some subscription needs.

        If it keeps what is not consumed, and has no subscription, it keeps all.
        """
        floors = [self.floor(cursor, table, {"consumed": params["consumed"]}) for table in params["tables"]]
        return min([params["start"], *(floors or ([0] if params["consumed"] else []))])

    def _end_leases(self, cursor: Cursor, table: Table, params: Params) -> None:
        """End the leases of the ranges that reach the offset `start`, and detach their messages."""
        self._run(cursor, table, "range_end_leases", params)
        values: Params = {**params, "max_attempts": table.definition.max_attempts}
        while self._expire(cursor, table, values):
            pass

    def _absorb(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Delete the detached messages that a seek decides about. Return their number."""
        self._run(cursor, table, "range_absorb", params)
        return int(cursor.rowcount)

    def _remaining(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Return how many detached messages, and ranges in progress, are left that a seek decides about."""
        return int(self._row(cursor, table, "range_remaining", params)[0])

    def _range(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Claim the next range. Return its messages in the order of their offsets."""
        return self._rows(cursor, table, "range_claim", params)

    def _extend_ranges(self, cursor: Cursor, table: Table, params: Params) -> dict[int, Any]:
        """Extend the leases on the ranges that hold messages among `ids`. Return these ids and the new ends."""
        return pairs(self._rows(cursor, table, "range_extend", params))

    def _complete_range(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> bool:
        """Complete the range under `token`, if `ids` are all of its messages and none has left it."""
        values = {**params, "number": len(ids), "sum": sum(ids)}
        return bool(self._rows(cursor, table, "range_complete", values))

    def _leave(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> list[int]:
        """Mark the messages among `ids` that the range under `token` holds as left. Return their ids.

        They are completed; or, with `attempts`, they become detached messages.
        """
        values: Params = params | {"ids": table.engine.dump_ids(ids)}
        held = [row[0] for row in self._rows(cursor, table, "range_hold", values)]
        if held:
            values["ids"] = table.engine.dump_ids(held)
            if "attempts" in params:
                self._rows(cursor, table, "range_detach", values)
                table.detached_ready = True
                table.ready_after(min(held) - 1)
            self._run(cursor, table, "range_mark", values)
        return held

    def _expire(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Detach the messages of ranges whose lease has expired. Return the number of ranges."""
        expired = self._rows(cursor, table, "range_expired", params | {"n": EXPIRED})
        for (range_id,) in expired:
            self._run(cursor, table, "range_expire", params | {"id": range_id})
        if expired:
            table.ready_after(0)
        return len(expired)


def _failed_state(params: Params) -> str:
    """Return the state of a message that failed in its first attempt, as range_detach has it."""
    if params["max_attempts"] <= 1:
        return "dead"
    return "scheduled" if (params["delay"] or 0) > 0 else "ready"
