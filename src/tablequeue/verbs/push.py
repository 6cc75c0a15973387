"""Pushes: payloads become rows, all of a call or none."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, cast, get_args

from tablequeue.engines.connection import Cursor
from tablequeue.engines.plan import Ways
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput, DuplicateKey
from tablequeue.model.connection import Connection
from tablequeue.model.definition import Definition
from tablequeue.model.message import NewMessage
from tablequeue.model.pacing import LARGEST, Duration
from tablequeue.model.payload import dump_headers
from tablequeue.observe import telemetry
from tablequeue.observe.counters import counters
from tablequeue.verbs import keys
from tablequeue.verbs.after import CHANGED, follow
from tablequeue.verbs.context import Context, Params, positive, seconds
from tablequeue.verbs.refusals import Refusal, check, first_of

OnConflict = Literal["raise", "skip", "return", "renew"]
ON_CONFLICT: tuple[OnConflict, ...] = get_args(OnConflict)
# Characters of a group or a key: what an index can hold on every engine.
LONGEST_KEY = 255


class Options(NamedTuple):
    """The options of `push` and `push_many` that every message may have."""

    delay: Duration | None
    due: datetime | None
    priority: int | None
    group: str | None
    headers: Mapping[str, Any] | None
    expires: Duration | None = None
    unique_for: Duration | None = None


@dataclass(slots=True)
class Encoded:
    """The messages of one call, encoded: payloads if all have the options of the call, else each as a row."""

    params: Params
    payloads: list[str | bytes]
    rows: list[Params]

    def __len__(self) -> int:
        return len(self.rows) or len(self.payloads)


NOTHING = Options(None, None, None, None, None)

# Types that can be iterated, but are one payload.
_ONE = (str, bytes, bytearray, memoryview, Mapping, NewMessage)

# The options that some queues refuse.
REFUSED: Ways[tuple[tuple[str, ...], Refusal]] = Ways(
    {
        "topic": (
            ("delay", "due", "expires", "unique_for"),
            Refusal(
                "A topic delivers its messages at once, and they do not expire.",
                "Leave delay, due, expires and unique_for out, or push into a queue.",
            ),
        ),
        "not expires": (
            ("expires",),
            Refusal(
                "The messages of the {queue} do not expire.",
                "Leave expires out; or alter the queue, by alter(expires=...) or `queue alter --expires`, with the "
                "seconds for messages without expires.",
            ),
        ),
        "not unique_for": (
            ("unique_for",),
            Refusal(
                "The keys of the {queue} are taken until their messages are finished.",
                "Leave unique_for out; or alter the queue, by alter(unique_for=...) or `queue alter --unique-for`, "
                "with the seconds for keys without unique_for.",
            ),
        ),
    }
)
KEYLESS = Ways({"topic": Refusal("A topic has no deduplication keys.", "Leave the key out, or push into a queue.")})
# The delay and the group of a message that is pushed without one.
DELAY: Ways[float | None] = Ways({"due": 0, "": None})
GROUP: Ways[str | None] = Ways({"strict": "", "": None})


class Defined(Protocol):
    """A queue, or its table."""

    @property
    def name(self) -> str: ...
    @property
    def definition(self) -> Definition: ...


@telemetry.pushing
def push(
    context: Context,
    payload: Any,
    options: Options,
    key: str | None,
    on_conflict: OnConflict,
    now: datetime | None,
    connection: Connection | None,
) -> int | None:
    check_on_conflict(on_conflict)
    if options == NOTHING and key is None and now is None and not telemetry.recording():
        # Made once: it took 20 of the 320 µs of a push on SQLite, because the caches are cold after a flush of the
        # disk.
        params = (context.plain or _plain(context)) | {"payload": context.codec.dump(payload)}
    else:
        params = encode_one(context, payload, options, key, now)
    if key is not None:
        id = context.table.plan.way(KEYED)(context, params, on_conflict, connection)
    else:
        id = context.run(context.messages.push, params, connection)
        counters.add("pushed_messages", context.table.name, 1)
    if id is not None:
        follow(context, CHANGED, now, connection)
    return id


def _push_keyed(context: Context, params: Params, on_conflict: OnConflict, connection: Connection | None) -> int | None:
    """Push a message with a key, which is taken until the message is finished."""
    while True:
        id = context.run(context.messages.push, params, connection)
        if id is not None:
            counters.add("pushed_messages", context.table.name, 1)
            return id
        key = params["key"]
        assert key is not None, "of a message with a key"
        if on_conflict == "skip":
            return None
        if on_conflict == "raise":
            raise _duplicate([key])
        there = context.run(context.messages.find_keys, {"keys": [key]}, connection)
        if key in there:
            return there[key]
        # The message with the key was finished between the two statements: push again.


def _push_timed(context: Context, params: Params, on_conflict: OnConflict, connection: Connection | None) -> int | None:
    """Push a message with a key that stays taken for a time."""
    (id,) = _push_each(context, params, [params], on_conflict, connection)
    return id


KEYED = Ways({"unique_for": _push_timed, "": _push_keyed})


@telemetry.pushing
def push_many(
    context: Context,
    messages: Iterable[Any],
    options: Options,
    on_conflict: OnConflict,
    now: datetime | None,
    connection: Connection | None,
) -> list[int | None]:
    check_on_conflict(on_conflict)
    encoded = encode(context, messages, options, now)
    if not encoded:
        return []
    if encoded.rows:
        ids = _push_each(context, encoded.params, encoded.rows, on_conflict, connection)
    else:
        params = encoded.params | {"payloads": encoded.payloads}
        ids = [*context.run(context.messages.push_many, params, connection)]
        counters.add("pushed_messages", context.table.name, len(ids))
    follow(context, CHANGED, now, connection, len(ids))
    return ids


def encode_one(context: Context, payload: Any, options: Options, key: str | None, now: datetime | None) -> Params:
    """Return the parameters of the push of one message."""
    return _call(context, now) | _row(context, payload, options, key)


def encode(context: Context, messages: Iterable[Any], options: Options, now: datetime | None) -> Encoded:
    """Encode messages, before the first statement: a bad payload refuses the whole call.

    So no transaction is open while the caller's iterable runs.
    """
    check_several(messages)
    params = _call(context, now) | _options(context, options)
    dump = context.codec.dump
    payloads: list[str | bytes] = []
    rows: list[Params] = []
    try:
        for message in messages:
            if type(message) is NewMessage:
                if payloads:
                    rows = [params | {"payload": payload} for payload in payloads]
                    payloads = []
                rows.append(params | _row(context, message.payload, _merged(message, options), message.key))
            elif rows:
                rows.append(params | {"payload": dump(message)})
            else:
                payloads.append(dump(message))
    except BadInput as error:
        words = f"Payload number {len(rows or payloads) + 1}: {error.cause}"
        raise type(error)(words, error.remedy) from None
    if payloads or any(row["group"] is None for row in rows):  # of a plain payload among them
        check_group(context.table, options.group)
    return Encoded(params, payloads, rows)


def _push_each(
    context: Context, params: Params, rows: list[Params], on_conflict: OnConflict, connection: Connection | None
) -> list[int | None]:
    """Push rows with options of their own, in one transaction."""
    ids, pushed = context.run(pushing(context, params, rows, on_conflict), params, connection)
    counters.add("pushed_messages", context.table.name, len(pushed))
    return ids


def pushing(
    context: Context, params: Params, rows: list[Params], on_conflict: OnConflict
) -> Callable[[Cursor, Table, Params], tuple[list[int | None], list[int]]]:
    """Return the operation that pushes rows: it returns an id for each, or None, and the ids that it has pushed."""
    push_each = context.table.plan.way(EACH)

    def push_keyed(cursor: Cursor, table: Table, params: Params) -> tuple[list[int | None], list[int]]:
        ids = push_each(context, cursor, table, params, rows, on_conflict)
        pushed = [id for id in ids if id is not None]
        while None in ids and on_conflict != "skip":
            refused = [place for place, id in enumerate(ids) if id is None]
            taken = cast(list[str], [rows[place]["key"] for place in refused])  # without a key nothing is refused
            if on_conflict == "raise":
                raise _duplicate(taken)
            there = keys.find(context, cursor, table, params, taken)
            gone = [place for place, key in zip(refused, taken, strict=True) if key not in there]
            again = push_each(context, cursor, table, params, [rows[place] for place in gone], on_conflict)
            pushed += [id for id in again if id is not None]
            for place, key in zip(refused, taken, strict=True):
                ids[place] = there.get(key)
            for place, id in zip(gone, again, strict=True):
                ids[place] = id
        return ids, pushed

    return push_keyed


def _each(
    context: Context, cursor: Cursor, table: Table, params: Params, rows: list[Params], on_conflict: OnConflict
) -> list[int | None]:
    return context.messages.push_each(cursor, table, params | {"rows": rows})


def _each_timed(
    context: Context, cursor: Cursor, table: Table, params: Params, rows: list[Params], on_conflict: OnConflict
) -> list[int | None]:
    return keys.push_each(context, cursor, table, params, rows, renew=on_conflict == "renew")


EACH = Ways({"unique_for": _each_timed, "": _each})


def _plain(context: Context) -> Params:
    check_group(context.table, None)
    context.plain = plain(context)
    return context.plain


def plain(context: Context) -> Params:
    """Return the parameters of a push without options. If a message needs a group, it gets the group without a name."""
    params = _call(context, None) | _options(context, NOTHING)
    return params | {"group": ""} if context.table.definition.grouped else params


def _call(context: Context, now: datetime | None) -> Params:
    return {"producer": context.who, "now": None if now is None else context.time(now)}


def _row(context: Context, payload: Any, options: Options, key: str | None) -> Params:
    if key is not None:
        check(context.table, KEYLESS)
    check_group(context.table, options.group)
    return {
        **_options(context, options),
        "payload": context.codec.dump(payload),
        "key": None if key is None else check_text(key, "key"),
    }


def _options(context: Context, options: Options) -> Params:
    delay, due, priority, group, headers, expires, unique_for = options
    headers = telemetry.carried(headers)
    plan = context.table.plan
    for names, refusal in plan.steps(REFUSED):
        if any(getattr(options, name) is not None for name in names):
            raise refusal.error(context.table)
    if delay is not None and due is not None:
        raise BadInput("Both delay and due are given.", "Give one of them.")
    if priority is not None:
        check_priority(context.table, priority)
    if delay is None and due is None:
        delay = plan.way(DELAY)
    return {
        "headers": None if headers is None else dump_headers(headers),
        "delay": None if delay is None else seconds(delay, "delay"),
        "due": None if due is None else context.time(due, "due"),
        "expires": None if expires is None else positive(expires, "expires"),
        "unique_for": None if unique_for is None else positive(unique_for, "unique_for"),
        "priority": 0 if priority is None else priority,
        "group": plan.way(GROUP) if group is None else check_text(group, "group"),
        "key": None,
        "batch_id": None,
    }


def _merged(message: NewMessage, options: Options) -> Options:
    timed = message.delay is not None or message.due is not None
    return Options(
        delay=message.delay if timed else options.delay,
        due=message.due if timed else options.due,
        priority=options.priority if message.priority is None else message.priority,
        group=options.group if message.group is None else message.group,
        headers=options.headers if message.headers is None else message.headers,
        expires=options.expires if message.expires is None else message.expires,
        unique_for=options.unique_for if message.unique_for is None else message.unique_for,
    )


def check_several(messages: Iterable[Any]) -> None:
    """Refuse a single payload, or a table: its keys, letters or names of columns would be pushed."""
    kind = type(messages).__name__
    if isinstance(messages, _ONE) or kind == "DataFrame" or not hasattr(messages, "__iter__"):
        raise BadInput(
            f"The payloads are one {kind}, and no list of payloads.",
            "Give a list, or another iterable, of them; push one payload with push.",
        )


def check_priority(queue: Defined, priority: int) -> None:
    if queue.definition.order != "priority":
        raise BadInput(
            f"The queue {queue.name!r} does not go by priority.",
            "Leave the priority out, or create a queue of the order priority.",
        )
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > LARGEST:
        raise BadInput(f"priority is {priority!r}.", f"Give a whole number from {-LARGEST} to {LARGEST}.")


def check_group(queue: Defined, group: str | None) -> None:
    if queue.definition.needs_groups:
        if group is None:
            raise BadInput(
                f"The {queue.definition.kind} {queue.name!r} has groups, and none is given.",
                "Give the message its group.",
            )
    elif group is not None and not queue.definition.takes_groups:
        raise BadInput(
            f"The queue {queue.name!r} has no groups.", "Leave the group out, or create a queue that has groups."
        )


def check_on_conflict(on_conflict: OnConflict) -> None:
    if on_conflict not in ON_CONFLICT:
        raise BadInput(f"on_conflict is {on_conflict!r}.", f"Give one of: {', '.join(ON_CONFLICT)}.")


def check_text(text: str, what: str) -> str:
    """Return a group or a key, if every engine stores and compares it exactly; else `BadInput`."""
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_KEY:
        raise BadInput(f"{what} is {reprlib.repr(text)}.", f"Give a string of 1 to {LONGEST_KEY} characters.")
    try:
        if "\0" not in text:
            text.encode()
            return text
    except UnicodeEncodeError:
        pass
    raise BadInput(f"{what} is {text!r}, which no database text can hold.", "Leave NULs and lone surrogates out.")


def _duplicate(keys: list[str]) -> DuplicateKey:
    which = "this key" if len(keys) == 1 else "these keys"
    return DuplicateKey(
        f"Live messages have {which} already: {first_of(keys, repr)}; nothing was pushed.",
        "Push with another key, or have such conflicts skipped.",
        keys,
    )
