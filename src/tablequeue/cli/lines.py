"""The input of `tablequeue push`: payloads, and options that are taken from their fields."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, BinaryIO, NamedTuple

from tablequeue.errors import BadInput, BadPayload
from tablequeue.model.message import NewMessage
from tablequeue.model.payload import CODECS
from tablequeue.verbs.push import Defined, check_priority, check_text

_BOM = "\ufeff"


class Lines(NamedTuple):
    """The messages of a file, their line numbers, and the number of bad lines that were skipped."""

    messages: list[Any]
    numbers: list[int]
    skipped: int


def read_lines(file: BinaryIO, queue: Defined, fields: Mapping[str, str], skip_bad: bool) -> Lines:
    """Read all messages of a file: payloads, or `NewMessage`s if `fields` names fields that are options."""
    messages: list[Any] = []
    numbers: list[int] = []
    skipped = 0
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            data = line.removesuffix(b"\n").removesuffix(b"\r")
            payload = load(data, queue.definition.payload, first=number == 1)
            messages.append(_message(queue, payload, fields) if fields else payload)
            numbers.append(number)
        except BadInput as error:
            if not skip_bad:
                remedy = "Correct the line, or skip such lines with --skip-bad; nothing was pushed."
                raise type(error)(f"Line {number}: {error.cause}", remedy) from None
            skipped += 1
    return Lines(messages, numbers, skipped)


def load(data: bytes, kind: str, *, first: bool = False) -> Any:
    """Return the payload that these bytes encode. Raises `BadPayload` if the queue cannot hold it."""
    payload = _LOADERS[kind](data, first)
    CODECS[kind].dump(payload)  # as push does, but here the line number is known
    return payload


def _text(data: bytes, first: bool) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadPayload(f"It is not UTF-8 at byte {error.start + 1}.", "Write it in UTF-8.") from None
    return text.removeprefix(_BOM) if first else text  # Windows programs write it at the beginning of a file


def _json(data: bytes, first: bool) -> Any:
    text = _text(data, first)
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        cause = f"It is not JSON: {error.msg} at character {error.pos + 1}."
    except RecursionError:
        cause = "It is nested too deeply."
    except ValueError as error:
        cause = f"It is not JSON: {error}."
    raise BadPayload(cause, 'Write JSON, such as {"to": "ada"} or "a string" in double quotes.')


_LOADERS: dict[str, Callable[[bytes, bool], Any]] = {
    "json": _json,
    "text": _text,
    "bytes": lambda data, first: data,
}


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse equal keys: Python would keep the last value and silently lose the others."""
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key occurs twice")
    return result


_decode = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique).decode


# -- options from fields -----------------------------------------------------------------------------------------------


def _message(queue: Defined, payload: Any, fields: Mapping[str, str]) -> NewMessage:
    values = {}
    for option, field in fields.items():
        value = payload.get(field) if isinstance(payload, dict) else None
        if value is None:
            raise BadInput(f"It has no field {field!r} for its {option}.", "Add the field.")
        values[option] = FIELDS[option](queue, value, field)
    return NewMessage(payload, **values)


def _text_field(queue: Defined, value: Any, field: str) -> str:
    # A whole number becomes text: ids of business rows are mostly numbers.
    text = str(value) if type(value) is int else value
    return check_text(text, f"The field {field!r}")


def _priority_field(queue: Defined, value: Any, field: str) -> int:
    check_priority(queue, value)
    return int(value)


def _due_field(queue: Defined, value: Any, field: str) -> datetime:
    time = time_of(value)
    if time is None:
        raise BadInput(
            f"The field {field!r} is {value!r}, which is not a time with its zone.", "Write it as for --due."
        )
    return time


# The options that a field can set, and the functions that read them.
FIELDS: dict[str, Callable[[Defined, Any, str], Any]] = {
    "key": _text_field,
    "group": _text_field,
    "priority": _priority_field,
    "due": _due_field,
}


def time_of(text: Any) -> datetime | None:
    """Return the time of an ISO 8601 text with a time zone; None if the text is not one."""
    try:
        time = datetime.fromisoformat(text)
        return None if time.utcoffset() is None else time.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None
