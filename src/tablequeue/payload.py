"""The three payload types: what goes into the column, and what comes back. Exactly, or not at all. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tablequeue.errors import BadPayload

# allow_nan: NaN and Infinity are not JSON. ensure_ascii: a DBA should be able to read the column.
_encode_plain = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
_encode_escaped = json.JSONEncoder(allow_nan=False, ensure_ascii=True, separators=(",", ":")).encode


def _dump_json(value: Any) -> str:
    try:
        text = _encode_plain(value)
        if not text.isascii() and _has_surrogate(text):
            text = _encode_escaped(value)  # a lone surrogate has no UTF-8, but its \\u escape is valid JSON
    except RecursionError:
        raise BadPayload("The payload is nested too deeply for JSON.", "Flatten it, or use a bytes queue.") from None
    except (TypeError, ValueError) as error:
        raise BadPayload(
            f"The payload is not JSON: {error}.",
            "Push dicts, lists, strings, finite numbers, booleans and None, or use a text or bytes queue.",
        ) from None
    return text


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
        # PostgreSQL cannot store it and SQLite's own functions stop at it: the same answer on every engine.
        raise BadPayload("The payload has a NUL character, which a text column cannot hold.", "Use a bytes queue.")
    return value


def _dump_bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise BadPayload(
            f"The payload is {type(value).__name__}, but the queue holds bytes.",
            "Push bytes, or use a json or text queue.",
        )
    return bytes(value)


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


class Codec(NamedTuple):
    """`dump` makes the column's value of a payload or raises `BadPayload`; `load` is its inverse."""

    dump: Callable[[Any], str | bytes]
    load: Callable[[Any], Any]


CODECS: Mapping[str, Codec] = {
    "json": Codec(_dump_json, json.loads),
    "text": Codec(_dump_text, str),
    "bytes": Codec(_dump_bytes, bytes),
}


def dump_headers(headers: Mapping[str, Any] | None) -> str | None:
    """Headers are a JSON object beside the payload, whatever the payload's type."""
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise BadPayload(f"The headers are {type(headers).__name__}.", "Give a dict of JSON values.")
    return _dump_json(dict(headers))
