"""Dependencies: messages are pushed that wait until others have left their queues; see dependency_ends.py."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NoReturn, Protocol, TypeAlias

from tablequeue.engines.connection import Cursor
from tablequeue.engines.dependencies import FAR
from tablequeue.engines.plan import Ways
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput
from tablequeue.model.batch import OnDead, check_on_dead
from tablequeue.model.connection import Connection
from tablequeue.model.message import Message, checked_id
from tablequeue.observe import telemetry
from tablequeue.observe.counters import counters
from tablequeue.verbs import catalogue
from tablequeue.verbs.after import CHANGED, follow
from tablequeue.verbs.context import Context, Params
from tablequeue.verbs.push import Defined, OnConflict, Options, check_on_conflict, encode, encode_one, pushing
from tablequeue.verbs.refusals import Refusal, check, first_of


class Opened(Defined, Protocol):
    """A queue, synchronous or async."""

    @property
    def table(self) -> str: ...


class Claimed(Protocol):
    """A claim, synchronous or async."""

    @property
    def id(self) -> int: ...
    @property
    def queue(self) -> Opened: ...


Dependency: TypeAlias = int | tuple[str, int] | Claimed
"""A message to wait for: the id of a message of the same queue, the name of a queue and an id, or a claim."""

GIVE = "Give a list of ids, of pairs of the name of a queue and an id, or of claims."
HOLDS = Ways(
    {
        "not dependencies": Refusal(
            "The messages of the {queue} wait for no others.",
            "Leave after out; or alter the queue, by alter(dependencies=True) or `queue alter --dependencies`.",
        )
    }
)
ENDS = Ways(
    {
        "at_most_once": Refusal(
            "The {queue} delivers at most once, so a message leaves it before it is finished.",
            "Wait for messages of queues that deliver at least once.",
        ),
        "dead_letter_to": Refusal(
            "Dead letters of the {queue} move to another one, as if they were finished.",
            "Wait for messages of queues without dead_letter_to.",
        ),
    }
)
"""The queues with messages that no other message can wait for."""


@telemetry.pushing
def push_after(
    context: Context,
    payload: Any,
    options: Options,
    key: str | None,
    on_conflict: OnConflict,
    after: Iterable[Dependency],
    on_dead: OnDead,
    now: datetime | None,
    connection: Connection | None,
) -> int | None:
    """Push a message that waits for others, in one transaction with the rows that name these."""
    wanted = _wanted(context, on_conflict, after, on_dead, connection)
    params = encode_one(context, payload, options, key, now)
    (id,) = _push(context, params, [params], on_conflict, wanted, on_dead, now, connection)
    return id


@telemetry.pushing
def push_many_after(
    context: Context,
    messages: Iterable[Any],
    options: Options,
    on_conflict: OnConflict,
    after: Iterable[Dependency],
    on_dead: OnDead,
    now: datetime | None,
    connection: Connection | None,
) -> list[int | None]:
    """Push messages that all wait for the same others, in one transaction with the rows that name these."""
    wanted = _wanted(context, on_conflict, after, on_dead, connection)
    encoded = encode(context, messages, options, now)
    rows = encoded.rows or [encoded.params | {"payload": payload} for payload in encoded.payloads]
    return _push(context, encoded.params, rows, on_conflict, wanted, on_dead, now, connection) if rows else []


def refuse_on_dead(on_dead: object) -> NoReturn:
    """Refuse the option `on_dead` of a push if its messages wait for none."""
    raise BadInput(
        f"on_dead is {on_dead!r}, and after is not given.",
        "Give the messages to wait for in after, or leave on_dead out.",
    )


def waits(context: Context, messages: Iterable[Message]) -> dict[int, int]:
    """Return the number of messages that each message still waits for, by its id, as of the last sweep."""
    holds = context.table.definition.dependencies
    ids = [message.id for message in messages if message.due_at == FAR] if holds else []
    if not ids:
        return {}
    return context.run(context.engine.dependencies.waits_for, {"ids": context.engine.dump_ids(ids)})


# -- private -----------------------------------------------------------------------------------------------------------


def _wanted(
    context: Context,
    on_conflict: OnConflict,
    after: Iterable[Dependency],
    on_dead: OnDead,
    connection: Connection | None,
) -> list[tuple[Table, list[int]]]:
    """Check the options that a push does not encode. Return what its messages wait for."""
    check_on_conflict(on_conflict)
    check(context.table, HOLDS)
    check_on_dead(on_dead)
    return _by_queue(context, after)


def _push(
    context: Context,
    params: Params,
    rows: list[Params],
    on_conflict: OnConflict,
    wanted: list[tuple[Table, list[int]]],
    on_dead: OnDead,
    now: datetime | None,
    connection: Connection | None,
) -> list[int | None]:
    far: Params = {"delay": None, "due": context.time(FAR, "due")}
    push = pushing(context, params, [row | far for row in rows], on_conflict)

    def act(cursor: Cursor, table: Table, params: Params) -> tuple[list[int | None], list[int]]:
        for other, awaited in wanted:
            _check_there(context, cursor, other, awaited)
        ids, pushed = push(cursor, table, params)
        later = _later(context, cursor, table, pushed, wanted)
        # Of two rows with one key, the first is pushed.
        row_of: dict[int | None, Params] = dict(zip(reversed(ids), reversed(rows), strict=True))
        heads = [_head(id, row_of[id], on_dead) for id in pushed]
        waits: list[Params] = [
            {**head, "on_table": other.table_name, "on_id": each}
            for head in heads
            for other, awaited in wanted
            for each in awaited
            if other is not context.table or each not in later
        ]
        if heads:
            context.engine.dependencies.add_dependencies(cursor, table, {"rows": heads + waits})
        return ids, pushed

    ids, pushed = context.run(act, params, connection)
    counters.add("pushed_messages", context.table.name, len(pushed))
    follow(context, CHANGED, now, connection, len(ids))
    return ids


def _head(message: int, row: Params, on_dead: OnDead) -> Params:
    """Return the head of a message: the row that has the time at which it was to be ready."""
    return {
        "message": message,
        "on_table": "",
        "on_id": 0,
        "on_dead": on_dead,
        "delay": row["delay"],
        "due": row["due"],
    }


def _by_queue(context: Context, after: Iterable[Dependency]) -> list[tuple[Table, list[int]]]:
    """Return what the message waits for: the ids by the tables of their queues."""
    own = context.table
    if not isinstance(after, Iterable) or isinstance(after, str):
        raise BadInput(f"after is {after!r}.", GIVE)
    # By the names that they have now: this process may know its own queue by an older one.
    named: dict[str | None, set[int]] = {}
    for each in after:
        match each:
            case object(queue=queue, id=id):
                name = None if queue.table == own.table_name else _name_of(context, queue)
            case (str(name), id):
                pass
            case int(id):
                name = None
            case _:
                raise BadInput(f"after has {each!r}, which names no message.", GIVE)
        named.setdefault(name, set()).add(checked_id(id))
    found: dict[str, tuple[Table, set[int]]] = {}
    for name, ids in named.items():
        table = own if name is None else catalogue.find(context.runner, name, "queue")
        check(table, ENDS)
        found.setdefault(table.table_name, (table, set()))[1].update(ids)
    return [(table, sorted(ids)) for table, ids in found.values()]


def _later(
    context: Context, cursor: Cursor, table: Table, pushed: list[int], wanted: list[tuple[Table, list[int]]]
) -> set[int]:
    """Return the ids of this queue that no message had before this push. They count as finished.

    Such an id may belong to a message of this push, which would wait for itself, or to a later message.
    """
    named = {id for other, ids in wanted if other is context.table for id in ids}
    later = {id for id in named if pushed and id >= min(pushed)}
    there = {*later} - {*pushed}
    if there:
        there = context.engine.dependencies.existing_ids(cursor, table, {"ids": context.engine.dump_ids([*there])})
    return later - there


def _name_of(context: Context, queue: Opened) -> str:
    """Return the current name of a claim's queue: it may have been renamed, and another queue may have its old name."""
    name = catalogue.name_in(catalogue.rows(context.runner), queue.table)
    if name is None:
        raise BadInput(f"The queue {queue.name!r} of a claim in after is not in this database.", GIVE)
    return name


def _check_there(context: Context, cursor: Cursor, table: Table, ids: list[int]) -> None:
    """Refuse ids that no message has. Without a history a queue cannot tell them from finished messages."""
    if table.definition.keeps_history:
        there = context.engine.dependencies.existing_ids(cursor, table, {"ids": context.engine.dump_ids(ids)})
        if missing := sorted({*ids} - there):
            raise BadInput(
                f"The queue {table.name!r} has no messages {first_of(missing)}; nothing was pushed.",
                "Give the ids of messages in the queue or in its history.",
            )
