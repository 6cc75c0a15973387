"""The three payload types: what goes into the column comes back exactly, or is refused. Pure: no database here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from tablequeue.errors import BadPayload

T = TypeVar("T")

# The deepest nesting of lists and dicts. Python's own limit depends on the depth of the caller's stack.
DEEPEST = 500

# Keys that json may have made of keys that are not text. Searching the text costs a tenth of searching the value.
_may_have_odd_keys = re.compile(r'[{,]"(?:-?[0-9]|(?:true|false|null|-?Infinity|NaN)")').search

# The types that contain no others. Anything else is a list, a dict, or an instance of a subclass.
_SCALARS = frozenset({str, int, float, bool, type(None)})
_TEXT = frozenset({str})

# allow_nan: NaN and Infinity are not JSON. ensure_ascii: a DBA should be able to read the column.
_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for a payload that cannot be read: `data` has the stored bytes, and `reason` says why."""

    data: bytes
    reason: str

    def __str__(self) -> str:
        return self.data.decode("utf-8", "backslashreplace")


class Codec(NamedTuple):
    """`dump` turns a payload into the value of the column; `load` is the inverse. Both raise `BadPayload`."""

    dump: Callable[[Any], str | bytes]
    load: Callable[[Any], Any]


# -- json ------------------------------------------------------------------------------------------------------------


class _What(NamedTuple):
    """The texts of a refusal of JSON."""

    it: str
    otherwise: str
    """What to do about a value that JSON cannot hold, instead of changing it."""


_PAYLOAD = _What("The payload", "or use a text or bytes queue")
_HEADERS = _What("A header", "or put it into the payload")
_DETAIL = _What("The detail", "or leave it out")
_RESULT = _What("The result", "or keep it elsewhere and give its name")


def _dump_json(value: Any, what: _What = _PAYLOAD) -> str:
    try:
        text = on_any_stack(_encode, value)
        if text.count("[") + text.count("{") > DEEPEST or _may_have_odd_keys(text):
            _check_structure(value)
    except RecursionError:
        raise BadPayload(
            f"{what.it} is nested more than {DEEPEST} levels deep.", f"Flatten it, {what.otherwise}."
        ) from None
    except (TypeError, ValueError) as error:
        raise BadPayload(
            f"{what.it} is not JSON: {error}.",
            f"Give dicts with keys of text, lists, strings, finite numbers, booleans and None, {what.otherwise}.",
        ) from None
    if not text.isascii() and _has_surrogate(text):
        # It could be escaped. MariaDB refuses that, and so do most programs that read JSON.
        raise BadPayload(
            f"{what.it} has a lone surrogate, which is no Unicode text.",
            f"Replace it, as by text.encode(errors='replace').decode(), {what.otherwise}.",
        )
    return text


def dump_detail(value: Any) -> str:
    """Return the detail of a report of progress as JSON."""
    return _dump_json(value, _DETAIL)


def dump_result(value: Any) -> str:
    """Return a result as JSON."""
    return _dump_json(value, _RESULT)


def _load_json(value: Any) -> Any:
    # The scanner alone, in C. `decode` skips white space around it, and takes twice as long for 100 bytes.
    try:
        loaded, end = _scan(value, 0)
        if end == len(value):
            return loaded
    except (StopIteration, ValueError, RecursionError):
        pass  # what follows reads it, or says why it cannot be read
    except TypeError:
        raise _of_another_type(value, "json") from None
    try:
        return on_any_stack(_decode, value)
    except RecursionError:
        reason = "It is nested too deeply"
    except ValueError as error:
        reason = f"It is JSON that Python cannot read ({error})"
    raise BadPayload(f"{reason}.", "Read it by SQL, or by Message.payload.data, and push it in another form.")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is too large for a float")
    return number


# A number too large for a float would come back as infinity. Only floats cost a call.
_decoder: Any = json.JSONDecoder(parse_float=_finite)
_decode, _scan = _decoder.decode, _decoder.scan_once


def _check_structure(value: Any) -> None:
    """Refuse keys that json would turn into text, and values nested too deeply to be read."""
    level, depth = [value], 0
    while level := [one for one in level if isinstance(one, (dict, list, tuple))]:
        depth += 1
        if depth > DEEPEST:
            raise RecursionError
        below: list[Any] = []
        for one in level:
            inside: Any = one
            if isinstance(one, dict):
                if not _TEXT.issuperset(map(type, one)) and (odd := [key for key in one if not isinstance(key, str)]):
                    raise TypeError(f"the key {odd[0]!r} is no text")
                inside = one.values()
            if not _SCALARS.issuperset(map(type, inside)):
                below += inside
        level = below


def on_any_stack(call: Callable[[Any], T], value: Any) -> T:
    """Return the result of a call that recurses into its value, however deep the caller's own stack is."""
    try:
        return call(value)
    except RecursionError:
        pass
    result: list[T] = []
    error: list[BaseException] = []

    def on_a_stack_of_its_own() -> None:
        try:
            result.append(call(value))
        except BaseException as raised:
            error.append(raised)

    thread = Thread(target=on_a_stack_of_its_own)
    thread.start()
    thread.join()
    if error:
        raise error[0]
    return result[0]


# -- text and bytes --------------------------------------------------------------------------------------------------


def _dump_text(value: Any) -> str:
    if not isinstance(value, str):
        raise BadPayload(
            f"The payload is {type(value).__name__}, but the queue holds text.",
            "Push a str, or use a json or bytes queue.",
        )
    if not value.isascii() and _has_surrogate(value):
        raise BadPayload(
            "The payload has a lone surrogate, which no database text can hold.",
            "Push it to a bytes queue, encoded with errors='surrogatepass'.",
        )
    if "\0" in value:
        # PostgreSQL cannot store it, and functions of SQLite stop at it: every engine refuses it.
        raise BadPayload("The payload has a NUL character, which a text column cannot hold.", "Use a bytes queue.")
    return value


def _dump_bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise BadPayload(
            f"The payload is {type(value).__name__}, but the queue holds bytes.",
            "Push bytes, or use a json or text queue.",
        )
    return bytes(value)


def _load_text(value: Any) -> str:
    if not isinstance(value, str):
        raise _of_another_type(value, "text")
    return value


def _load_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        raise _of_another_type(value, "bytes")
    return bytes(value)


def _of_another_type(value: Any, held: str) -> BadPayload:
    return BadPayload(
        f"The payload is {type(value).__name__}, but the queue holds {held}.",
        "Find the program that changed the table or its entry in the catalogue.",
    )


# In JSON, as escapes. Backslashes that are escaped themselves are taken out first, then whole pairs.
_ESCAPED_PAIR = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..", re.DOTALL)
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def has_lone_surrogate(json_text: str) -> bool:
    """Whether a JSON text has a lone surrogate as an escape, which stands for no Unicode text."""
    if _ESCAPED_SURROGATE.search(json_text) is None:
        return False
    return _ESCAPED_SURROGATE.search(_ESCAPED_PAIR.sub(" ", json_text.replace("\\\\", " "))) is not None


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


CODECS: Mapping[str, Codec] = {
    "json": Codec(_dump_json, _load_json),
    "text": Codec(_dump_text, _load_text),
    "bytes": Codec(_dump_bytes, _load_bytes),
}


def load_or_show(codec: Codec, value: Any) -> Any:
    """Return the payload, or `Unreadable` in its place."""
    try:
        return codec.load(value)
    except BadPayload as error:
        return Unreadable(value.encode() if isinstance(value, str) else bytes(value), error.cause)


def json_text(payload: Any, indent: int | None = None) -> str:
    """Return a payload as JSON for people to read, however deeply it is nested."""
    return on_any_stack(lambda value: json.dumps(value, ensure_ascii=False, indent=indent), payload)


def dump_headers(headers: Mapping[str, Any] | None) -> str | None:
    """Return headers as the text of a JSON object, whatever the payload's type."""
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise BadPayload(f"The headers are {type(headers).__name__}.", "Give a dict of JSON values.")
    return _dump_json(dict(headers), _HEADERS)


def load_headers(value: Any) -> dict[str, Any]:
    """Return the headers of a message; none, if a program stored headers that `push` would refuse."""
    try:
        headers = _load_json(value) if isinstance(value, str) else value
    except BadPayload:
        return {}
    return headers if isinstance(headers, dict) else {}
