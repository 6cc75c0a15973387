"""The assertion about what was pushed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import EllipsisType
from typing import Any

from tablequeue.consumer import Consumer
from tablequeue.errors import BadInput, BadPayload
from tablequeue.ext import context_of
from tablequeue.model.message import Message
from tablequeue.model.pacing import Duration
from tablequeue.model.payload import CODECS
from tablequeue.model.states import STATES
from tablequeue.verbs.context import seconds
from tablequeue.verbs.inspect import BATCH, in_batches

# How many of the messages that differ a failure shows.
SHOWN = 5
# Of the seconds of a delay: times are in milliseconds on SQLite.
DIGITS = 3


def assert_pushed(
    queue: Consumer,
    payload: Any = ...,
    *,
    group: str | EllipsisType | None = ...,
    key: str | EllipsisType | None = ...,
    priority: int | EllipsisType = ...,
    headers: Mapping[str, Any] | EllipsisType = ...,
    delay: Duration | EllipsisType = ...,
    count: int | None = None,
) -> list[Message]:
    """Fail unless a message was pushed to the queue that has everything given here. Return all such messages, by id.

    payload   what was pushed. Parts of it may be objects that compare as they like, such as `unittest.mock.ANY`.
    headers   all headers that it was pushed with; `{}`: none.
    delay     the time from its push until it is due, at last: seconds, or a timedelta; 0: it was due at once.
    count     how many such messages there are; None: one or more; 0: none.

    An argument that is not given may have any value. A message counts in every state: ready, scheduled, in progress, a
    dead letter, or in the history. A deleted message does not count: `take`, `purge` and queues without a history
    delete messages. Uncommitted messages of other transactions are not seen. For a subscription the messages of its
    topic count.

    Raises `AssertionError`, which shows the messages that come nearest and where they differ.
    """
    __tracebackhide__ = True
    if not isinstance(queue, Consumer):
        raise BadInput(
            f"assert_pushed looks into a Queue, and was given {type(queue).__name__}.",
            "Give it the queue of tablequeue.connect, also in a test of asyncio: db.queue(name).",
        )
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
        raise BadInput(f"count is {count!r}.", "Give a whole number from 0, or None for one or more.")
    options = {"payload": payload, "group": group, "key": key, "priority": priority, "headers": headers, "delay": delay}
    wanted = {name: value for name, value in options.items() if value is not ...}
    expected = {name: _as_stored(queue, name, value) for name, value in wanted.items()}
    messages = _all(queue)
    differences = {message.id: _differences(message, expected) for message in messages}
    found = [message for message in messages if not differences[message.id]]
    if (len(found) == count) if count is not None else found:
        return found
    others = sorted((one for one in messages if differences[one.id]), key=lambda one: len(differences[one.id]))
    raise AssertionError(_explained(queue.name, wanted, count, found, others, differences))


# -- private -----------------------------------------------------------------------------------------------------------


def _as_stored(queue: Consumer, name: str, value: Any) -> Any:
    """Return an expected value as it comes back from the database: a tuple in JSON is a list then."""
    if name == "delay":
        return round(seconds(value, "delay"), DIGITS)
    if name not in ("payload", "headers"):
        return value
    if name == "headers" and not isinstance(value, Mapping):
        raise BadInput(f"headers is {value!r}.", "Give a dict, or leave it out.")
    codec = context_of(queue).codec if name == "payload" else CODECS["json"]
    try:
        return codec.load(codec.dump(dict(value) if name == "headers" else value))
    except BadPayload:
        return value  # it may have a part that compares as it likes


def _all(queue: Consumer) -> list[Message]:
    """Return the messages of the queue and of its history. One that is finished between the reads is in both."""
    found = {message.id: message for batch in in_batches(context_of(queue), *STATES) for message in batch}
    after: int | None = None
    while queue.definition.keeps_history and (page := queue.history(BATCH, after=after)):
        found |= {message.id: message for message in page}
        after = page[-1].id
    return [found[id] for id in sorted(found)]


def _differences(message: Message, expected: Mapping[str, Any]) -> list[str]:
    return [line for name, value in expected.items() for line in _compared(name, value, _actual(message, name))]


def _actual(message: Message, name: str) -> Any:
    if name != "delay":
        return getattr(message, name)
    delay = message.due_at - message.pushed_at if message.due_at else timedelta()
    return round(delay.total_seconds(), DIGITS)


def _compared(path: str, expected: Any, actual: Any) -> Iterator[str]:
    """Return where two values differ: of dicts and lists, which of their values."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in sorted(expected.keys() - actual.keys(), key=str):
            yield f"{path}[{name!r}] is missing"
        for name in sorted(actual.keys() - expected.keys(), key=str):
            yield f"{path}[{name!r}] is {actual[name]!r}, and was not expected"
        for name in sorted(expected.keys() & actual.keys(), key=str):
            yield from _compared(f"{path}[{name!r}]", expected[name], actual[name])
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for place, (one, other) in enumerate(zip(expected, actual, strict=True)):
            yield from _compared(f"{path}[{place}]", one, other)
    elif not _equal(expected, actual):
        yield f"{path} is {actual!r}, not {expected!r}"


def _equal(expected: Any, actual: Any) -> bool:
    """Compare as Python does, but for true and false: they are no numbers in JSON."""
    numbers = isinstance(expected, (int, float)) and isinstance(actual, (int, float))
    if numbers and isinstance(expected, bool) != isinstance(actual, bool):
        return False
    return bool(expected == actual)


def _explained(
    queue: str,
    wanted: Mapping[str, Any],
    count: int | None,
    found: Sequence[Message],
    others: Sequence[Message],
    differences: Mapping[int, Sequence[str]],
) -> str:
    number = "one or more messages" if count is None else "no message" if not count else _messages(count)
    such = f" with {', '.join(f'{name}={value!r}' for name, value in wanted.items())}" if wanted else ""
    lines = [f"Expected {number} pushed to {queue!r}{such}, found {_messages(len(found)) if found else 'none'}."]
    if found:
        lines.append("Found:")
        lines += _first([f"  {_named(message)}: {message.payload!r}" for message in found])
    if others and len(found) < (count or 1):
        lines.append("Others, the nearest first:")
        lines += _first(["\n    ".join([f"  {_named(one)}:", *differences[one.id]]) for one in others])
    if not found and not others:
        lines.append("The queue and its history are empty. What a transaction has not committed is not seen.")
    return "\n".join(lines)


def _first(lines: list[str]) -> list[str]:
    left = len(lines) - SHOWN
    return [*lines[:SHOWN], f"  and {left} more"] if left > 0 else lines


def _messages(number: int) -> str:
    return f"{number} message{'' if number == 1 else 's'}"


def _named(message: Message) -> str:
    return f"message {message.id}, {message.state}"
