"""Move all messages of a queue to a queue of another database. Each arrives exactly once, also after kills.

A message is moved in three steps, each of which is one transaction of one database:

1. The source moves it into a table of reserved messages, which no consumer reads, with a token of this batch.
2. The target stores it, with a row that names its old id and the token. If that row exists, it was stored before.
3. The source deletes the reserved message.

After a crash the next move begins with the reserved messages: it deletes those that the target has, and moves the
others. So it is harmless if two moves do the same at once, or if one goes on late: the rows of the target stay.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from time import sleep
from typing import Any, NamedTuple, cast

from tablequeue.engines.columns import COLUMNS
from tablequeue.engines.moving import ASIDE
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.errors import BadInput, BadPayload, Conflict, DuplicateKey, TablequeueError
from tablequeue.model.definition import Definition
from tablequeue.model.names import MOVING
from tablequeue.verbs import control, inspect, keys, push
from tablequeue.verbs.after import CHANGED, follow
from tablequeue.verbs.context import Context
from tablequeue.verbs.inspect import BATCH
from tablequeue.verbs.refusals import first_of

# Seconds between two looks of a move that follows its source, and found nothing.
PAUSE = 0.5
LAST_ID = (1 << 63) - 1
# How often a batch is tried again, when other programs push its keys at the same moment.
RETRIES = 100
OUTCOMES = ("cancelled", "expired")
# Instead of the id of a message in the target: it goes back to the source.
BACK = 0
# An empty payload of each type, for rows that are deleted in the same transaction, or that no consumer can get.
EMPTY: Mapping[str, Any] = {"json": None, "text": "", "bytes": b""}


class Moved(NamedTuple):
    """A batch that has been moved, or copied, to another database."""

    ids: dict[int, int]
    """The ids that the messages had, with their new ones."""
    history: bool = False
    """Whether they are copies of the history."""


class _KeysTaken(Exception):
    """Another program pushed a key at the same moment; the transaction is rolled back."""


@dataclass
class _Pass:
    """One look at all messages of the source, in the order of their ids."""

    groups: set[str] = field(default_factory=set)
    """The groups with a message that stays: messages behind it stay too, to keep their order."""
    keys: dict[str, None] = field(default_factory=dict)
    """The keys that messages of the target have."""
    refused: dict[int, str] = field(default_factory=dict)
    """The messages that the target cannot hold, with the reasons, kept for later looks."""
    number: int = 0
    """How many messages have been moved."""

    def error(self, to: Context) -> TablequeueError | None:
        """Return what the user must know at the end."""
        if self.refused:
            return BadPayload(
                f"{to.table.name!r} there cannot hold the messages {first_of(self.refused)}; these stay, the others "
                f"were moved. The first one: {next(iter(self.refused.values()))}",
                "Have them consumed here; or move to a queue with another payload type.",
            )
        if self.keys:
            return DuplicateKey(
                f"Messages of {to.table.name!r} there have keys of messages to move: {first_of(self.keys, repr)}; "
                "these stay, the others were moved.",
                "Move again when the messages there are finished.",
                [*self.keys],
            )
        return None


def batches(context: Context, to: Context, history: bool, follow: bool, now: datetime | None) -> Generator[Moved]:
    """Move messages that no consumer holds. Yield each batch when the target has it, before the source deletes it."""
    context.time(now)  # raises before anything is changed
    if history:
        for each in (context, to):
            inspect.need_history(each)
    for each in (context, to):
        each.run(each.engine.catalogue.create_moving, {"now": None})
    _refuse_itself(context, to)
    if context.table.definition.grouped:
        # Its groups are in order, one message at a time, over both databases. So the source must deliver no more
        # messages.
        control.pause(context, None, None)
    found = _Pass()
    while True:
        found = _Pass(refused=found.refused)
        context, to = context.current(), to.current()
        yield from _pass(context, to, found, now)
        if found.number >= BATCH:
            continue
        if history:
            yield from _copy_history(context, to)
            history = False
        elif not follow:
            break
        elif not found.number:
            yield Moved({})
            sleep(PAUSE)
    if error := found.error(to):
        raise error


def _pass(context: Context, to: Context, found: _Pass, now: datetime | None) -> Iterator[Moved]:
    """Move messages that were reserved before, then all messages, one batch after the other."""
    yield from _forward(context, to, found, now)
    moving, after = context.engine.moving, 0
    while rows := context.run(moving.waiting, {"after": after, "high": LAST_ID, "n": BATCH}):
        before, after = after, rows[-1][0]
        taken = _look_for_keys(to, [row[2] for row in rows if row[2] is not None])
        found.keys |= dict.fromkeys(taken)
        if _reserve(context, before, after, {*taken}, found):
            follow(context, CHANGED, now, None)
            yield from _forward(context, to, found, now)


def _look_for_keys(to: Context, wanted: Sequence[str]) -> set[str]:
    def run(cursor: Any, target: Table, params: Params) -> set[str]:
        return _taken(to, cursor, target, wanted)

    return to.run(run, {}) if wanted else set()


def _reserve(context: Context, after: int, high: int, taken: set[str], found: _Pass) -> bool:
    """Reserve the messages with these ids, except messages with a taken key. Return whether there are any."""
    moving, grouped = context.engine.moving, context.table.definition.grouped

    def run(cursor: Any, table: Table, params: Params) -> tuple[list[int], set[str]]:
        rows = moving.waiting(cursor, table, params)
        # After the messages are locked: no message of their groups can be claimed from here on.
        groups = found.groups | moving.busy_groups(cursor, table, params) if grouped else set()
        ids = []
        for id, group, key in rows:
            if id in found.refused or key in taken or group in groups:
                groups |= {group} if grouped else set()
            else:
                ids.append(id)
        if ids:
            moving.set_aside(cursor, table, {"ids": context.engine.dump_ids(ids), "token": secrets.token_hex(16)})
        return ids, groups

    ids, found.groups = context.runner.run(run, context.table, {"after": after, "high": high, "n": BATCH})
    return bool(ids)


def _forward(context: Context, to: Context, found: _Pass, now: datetime | None) -> Iterator[Moved]:
    """Store the reserved messages in the target, then delete them from the source."""
    moving, after = context.engine.moving, 0
    while rows := context.run(moving.aside, {"after": after, "n": BATCH}):
        after = rows[-1][0]
        brought = _bring(to, [_as_row(context, to, row) for row in rows], context.table.definition.grouped, found, now)
        come = {id: new for id, new in brought.items() if new != BACK}
        found.number += len(come)
        try:
            if come:
                yield Moved(come)
        finally:
            context.run(moving.forget_aside, {"ids": context.engine.dump_ids([*come])})
        _give_back(context, [id for id, new in brought.items() if new == BACK], found, now)


def _give_back(context: Context, ids: Sequence[int], found: _Pass, now: datetime | None) -> None:
    """Put messages that the target refused, and noted, back into the queue, with new ids."""

    def run(cursor: Any, table: Table, params: Params) -> list[int]:
        old, new = context.messages.move(cursor, table, params)
        if len(new) < len(old):
            raise _KeysTaken
        return new

    for id in ids:
        params: Params = {"ids": context.engine.dump_ids([id]), "token": secrets.token_hex(16)}
        try:
            new = context.runner.run(run, _own(context), params | {"now": context.time(now)})
        except _KeysTaken:  # by a message that was pushed here meanwhile: the next look tries again
            continue
        if reason := found.refused.pop(id, None):
            found.refused |= dict.fromkeys(new, reason)


def _own(context: Context) -> Table:
    """Return the table of the queue, with the table of its reserved messages as the source."""
    own, engine = context.table, context.engine
    table = engine.table(own.name, own.definition, own.table_name)
    table.source = engine.table(own.name, Definition(payload=own.definition.payload), f"{own.table_name}{MOVING}")
    return table


def _bring(to: Context, rows: list[Params], grouped: bool, found: _Pass, now: datetime | None) -> dict[int, int]:
    """Insert messages into the target. Return their old ids with the new ones, or with BACK.

    A message that the target cannot take stays: its key is taken there, or its payload is too large. Unless it holds up
    a group, it goes back to the source. The target notes this first, so that no other move stores it.
    """
    try:
        return _insert(to, rows, grouped, found, now)
    except BadPayload as error:
        if len(rows) > 1:
            half = len(rows) // 2
            first = _bring(to, rows[:half], grouped, found, now)
            return first | _bring(to, rows[half:], grouped, found, now)
        found.refused |= {rows[0]["id"]: error.cause}
        return _insert(to, rows, grouped, found, now)


def _insert(to: Context, rows: list[Params], grouped: bool, found: _Pass, now: datetime | None) -> dict[int, int]:
    """Insert the messages that are not inserted yet, in one transaction."""
    engine, definition = to.engine, to.table.definition

    def run(cursor: Any, target: Table, params: Params) -> tuple[dict[int, int], dict[int, int], list[Params]]:
        # One move at a time stores messages in a database: the others see what it has stored.
        engine.catalogue.lock(cursor, target, {})
        there = engine.moving.find_moved(cursor, target, {"ids": engine.dump_ids([row["id"] for row in rows])})
        come = {row["id"]: there[_name(row)] for row in rows if _name(row) in there}
        free, stay = _free(to, cursor, target, [row for row in rows if row["id"] not in come], grouped, found)
        if stay and not grouped:
            come |= {row["id"]: BACK for row in stay}
            _note(to, cursor, target, stay, come)
        if not free:
            return come, {}, stay
        taking = sorted(row["key"] for row in free if row["key"]) if definition.unique_for else []
        if len(keys.take(to, cursor, target, params, taking)) < len(taking):
            raise _KeysTaken
        # With ids below zero, in the same order: the target may be a source too, with reserved messages of its own.
        passing = dict(zip(range(-len(free), 0), free, strict=True))
        engine.moving.put_aside(cursor, target, {"rows": [{**row, "id": id} for id, row in passing.items()]})
        ids = engine.dump_ids([*passing])
        old, new = to.messages.move(cursor, target, params | {"ids": ids, "token": secrets.token_hex(16)})
        if len(new) < len(old):
            raise _KeysTaken
        brought = {passing[id]["id"]: its for id, its in zip(old, new, strict=True)}
        _note(to, cursor, target, free, brought)
        if taking:
            keys.name(to, cursor, target, params, {row["key"]: brought[row["id"]] for row in free if row["key"]})
        return come | brought, brought, stay

    for retry in count():
        try:
            come, brought, stay = to.runner.run(run, _own(to), {"now": to.time(now)})
            break
        except _KeysTaken:  # the next look sees it
            if retry == RETRIES:
                raise Conflict("Other programs push keys of the messages to insert.", "Move again.") from None
    if brought:
        to.table.ready_after(min(brought.values()) - 1)
        follow(to, CHANGED, now, None, len(brought))
    found.keys |= {row["key"]: None for row in stay if row["key"] is not None and row["id"] not in found.refused}
    if grouped:
        found.groups |= {row["group"] or "" for row in stay}
    return come


def _free(
    to: Context, cursor: Any, target: Table, rows: list[Params], grouped: bool, found: _Pass
) -> tuple[list[Params], list[Params]]:
    """Return messages with free keys in the target, and the others. Messages behind the others stay too."""
    taken = _taken(to, cursor, target, [row["key"] for row in rows if row["key"] is not None])
    groups = {*found.groups}
    free: list[Params] = []
    stay: list[Params] = []
    for row in rows:
        key, group = row["key"], row["group"] or ""
        if row["id"] in found.refused or key in taken or (grouped and group in groups):
            groups.add(group)
            stay.append(row)
        else:
            free.append(row)
            taken |= set() if key is None else {key}
    return free, stay


def _taken(to: Context, cursor: Any, target: Table, wanted: Sequence[str]) -> set[str]:
    return {*keys.find(to, cursor, target, {"now": None}, wanted)} if wanted else set()


def _copy_history(context: Context, to: Context) -> Iterator[Moved]:
    """Copy messages that have left the source for good, and have not been copied yet."""
    low, high = inspect.history_bounds(context) or (1, 0)
    for start in range(low, high + 1, BATCH):  # lowest ids first: the new ones are in the same order
        rows = inspect.history_rows(context, start, start + BATCH - 1, BATCH)
        copied = [_values(context, to, COLUMNS, row) for row in reversed(rows)]
        # A message that was delivered at most once, and is not completed, may still be completed.
        if come := _bring_history(to, [row for row in copied if row["finished_at"] is not None]):
            yield Moved(come, history=True)


def _bring_history(to: Context, rows: list[Params]) -> dict[int, int]:
    """Insert messages into the history of the target, unless it has them already. Return old and new ids."""
    engine = to.engine

    def run(cursor: Any, target: Table, params: Params) -> dict[int, int]:
        engine.catalogue.lock(cursor, target, {})
        there = engine.moving.find_moved(cursor, target, {"ids": engine.dump_ids([row["id"] for row in rows])})
        free = [row for row in rows if _name(row) not in there]
        new = dict(zip([row["id"] for row in free], _new_ids(to, cursor, target, len(free)), strict=True))
        if free:
            engine.moving.put_history(cursor, target, {"rows": [{**row, "id": new[row["id"]]} for row in free]})
            _note(to, cursor, target, free, new)
        return new

    return to.runner.run(run, to.table, {}) if rows else {}


def _new_ids(to: Context, cursor: Any, target: Table, number: int) -> list[int]:
    """Draw ids of the target: by messages that this transaction deletes again, so that nobody sees them."""
    if not number:
        return []
    params = push.plain(to) | {"payloads": [to.codec.dump(EMPTY[target.definition.payload])] * number}
    ids = to.messages.push_many(cursor, target, params)
    for state in ("blocked", "ready"):  # behind the head of a group first: its delete would promote another one
        to.messages.purge_ids(cursor, target, {"state": state, "ids": to.engine.dump_ids(ids)})
    return ids


def _note(to: Context, cursor: Any, target: Table, rows: Sequence[Params], new: Mapping[int, int]) -> None:
    noted = [{"id": row["id"], "token": row["token"], "new_id": new[row["id"]]} for row in rows]
    to.engine.moving.note_moved(cursor, target, {"rows": noted})


def _name(row: Params) -> tuple[int, str]:
    """Return the key of a message in the target, whatever the name of the source: its old id and its token."""
    return row["id"], row["token"] or ""


def _as_row(context: Context, to: Context, row: Row) -> Params:
    """Return a reserved message as the values of a row of the target."""
    return _values(context, to, ASIDE, row)


def _values(context: Context, to: Context, columns: Sequence[str], row: Row) -> Params:
    """Return a row of the source as the parameters of a row of the target.

    A message of the history has no token: it gets a hash of all its values, by which a repeated copy is recognized.
    """
    load, dump = context.engine.load_time, to.engine.dump_time
    given = dict(zip(columns, row, strict=True))
    times = [name for name in columns if name.endswith("_at") and given[name] is not None]
    given |= {name: load(given[name]) for name in times}
    if not isinstance(given["payload"], str):
        given["payload"] = bytes(given["payload"])
    digest = hashlib.sha256(repr(sorted(given.items())).encode("utf-8", "backslashreplace")).hexdigest()[:32]
    values = {"token": digest} | given | {name: dump(given[name]) for name in times}
    values["outcome"] = given["state"] if given["state"] in OUTCOMES else None
    values["due"] = values.pop("due_at")
    values["headers"] = _text(given["headers"])
    errors = given["errors"]
    attempts: list[Mapping[str, Any]] = json.loads(errors) if isinstance(errors, str) else errors or []
    values["errors"] = _text([{**one, "at": _in_json(dump(load(one["at"])))} for one in attempts] or None)
    return cast(Params, values)


def _text(value: Any) -> str | None:
    """Return JSON as its text. Some drivers return text, others the value."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _in_json(time: Any) -> Any:
    """Return a time as the target writes it into the errors of a message: as text, or as a number."""
    return time if isinstance(time, (str, int)) else str(time)


def _refuse_itself(context: Context, to: Context) -> None:
    """Refuse a source that is the target too, under another URL. It inserts a row, looks for it, and deletes it."""
    moving = context.engine.moving
    probe, token = -(1 << 62) - secrets.randbelow(1 << 62), secrets.token_hex(16)  # no message has such an id
    payload = context.codec.dump(EMPTY[context.table.definition.payload])
    row = dict.fromkeys("due first_popped_at popped_at expires_at group key producer consumer headers errors".split())
    row |= {"id": probe, "token": token, "state": "ready", "attempts": 0, "priority": 0, "payload": payload}
    row["pushed_at"] = context.engine.dump_time(datetime.now(UTC))
    context.run(moving.put_aside, {"rows": [row]})
    seen = to.run(to.engine.moving.aside, {"after": probe - 1, "n": 1})
    context.run(moving.forget_aside, {"ids": context.engine.dump_ids([probe])})
    if any(dict(zip(ASIDE, row, strict=True))["token"] == token for row in seen):
        raise BadInput(f"{context.table.name!r} is both queues.", "Name another queue to move the messages to.")
