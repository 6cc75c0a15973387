"""Values as PostgreSQL wants and returns them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.adapt import Dumper

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
# Characters of COPY text sent at a time.
COPY_CHUNK = 1 << 18


class Ids(list[int]):
    """Ids as one parameter."""


class IdsDumper(Dumper):
    """In one piece; for psycopg to write a list takes 0.7 µs an element."""

    oid = psycopg.adapters.types["int8"].array_oid

    def dump(self, ids: Ids) -> bytes:
        return f"{{{','.join(map(str, ids))}}}".encode()


class Column(list[Any]):
    """A list as one parameter, sent in binary: for psycopg to escape the texts was a third of a bulk write."""


def load_time(value: Any) -> datetime:
    """Return an aware time in UTC, of the server's text or of a driver's value."""
    if not isinstance(value, str):
        return value.astimezone(UTC)
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        # Of somebody's own SQL: a time before the first or after the last year that Python has.
        return FIRST if value.startswith("-") or value.endswith("BC") else LAST


def copy_text(value: Any) -> str:
    r"""A value in COPY's text format: \N is null; backslash, newline, return and tab are escaped."""
    if value is None:
        return r"\N"
    if isinstance(value, bytes):
        return rf"\\x{value.hex()}"
    return str(value).replace("\\", r"\\").replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t")


def copy_lines(ids: Sequence[int], payloads: Sequence[str | bytes], rest: str) -> Iterator[str]:
    lines: list[str] = []
    size = 0
    for id, payload in zip(ids, payloads, strict=True):
        line = f"{id}\t{copy_text(payload)}{rest}"
        lines.append(line)
        size += len(line)
        if size >= COPY_CHUNK:
            yield "".join(lines)
            lines.clear()
            size = 0
    yield "".join(lines)
