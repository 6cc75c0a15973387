"""Conversions of values to and from PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from struct import Struct
from typing import Any

import psycopg
from psycopg.adapt import Dumper

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
# Number of bytes that a COPY sends at a time.
COPY_CHUNK = 1 << 18
# Its binary format: a row begins with the number of its fields, and a field with its length.
_COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_TRAILER = b"\xff\xff"
_LENGTH = Struct(">i").pack
_ROW = Struct(">hiqi").pack


class Ids(list[int]):
    """A list of ids as one parameter."""


class IdsDumper(Dumper):
    """Formats a list of ids in one step. psycopg takes 0.7 µs for each element."""

    oid = psycopg.adapters.types["int8"].array_oid

    def dump(self, ids: Ids) -> bytes:
        return f"{{{','.join(map(str, ids))}}}".encode()


class Column(list[Any]):
    """A list as one parameter, sent in binary. To escape the texts took psycopg a third of a bulk write."""


def load_time(value: Any) -> datetime:
    """Return the server's text or a driver's value as an aware time in UTC."""
    if not isinstance(value, str):
        return value.astimezone(UTC)
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        # A user's own SQL may have written a time outside of the years that Python supports.
        return FIRST if value.startswith("-") or value.endswith("BC") else LAST


def copy_field(value: str | bytes | None) -> bytes:
    """Return a field of a row of COPY's binary format: the bytes as the server has them, after their length."""
    if value is None:
        return _LENGTH(-1)
    data = value.encode() if isinstance(value, str) else value
    return _LENGTH(len(data)) + data


def copy_rows(ids: Sequence[int], payloads: Sequence[str | bytes], rest: Sequence[bytes]) -> Iterator[bytes]:
    """Yield COPY's binary format of rows with an id, a payload, and the same fields `rest` in all of them.

    Against the text format: the server parses no times, which was a quarter of its work, and nothing is escaped. A row
    of 100 characters takes us 0.9 µs instead of 1.4, one of 1,000 takes 1.8 instead of 5.3.
    """
    fields, end = len(rest) + 2, b"".join(rest)
    parts = [_COPY_HEADER]
    size = 0
    for id, payload in zip(ids, payloads, strict=True):
        data = payload if isinstance(payload, bytes) else payload.encode()
        parts += (_ROW(fields, 8, id, len(data)), data, end)
        size += len(data) + len(end)
        if size >= COPY_CHUNK:
            yield b"".join(parts)
            parts.clear()
            size = 0
    yield b"".join((*parts, _COPY_TRAILER))
