"""Results of tasks, and chords, in one database: for Celery and for taskiq."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import tablequeue
from tablequeue.engines import engine_class
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.params import Params
from tablequeue.engines.pool import shown
from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Table
from tablequeue.model.connection import Connection
from tablequeue.model.definition import Definition
from tablequeue.model.names import PART

T = TypeVar("T")

CHANNELS = 16
"""The number of channels by which results wake waiting processes. A result wakes the listeners of its channel."""
# The seconds of a result that does not expire.
FOREVER = 100 * 365 * 86400.0
# The parameters of a result outside of a chord.
NO_PART = {"chord": None, "member": "", "place": 0, "returned": b""}
# How many results are read, or deleted because they have expired, in one call.
AT_ONCE = 500
# Seconds between two deletions of expired rows, by one process that stores results; and after one that left some.
EXPIRE_EVERY, EXPIRE_AGAIN = 10.0, 0.1
# Seconds between two looks of such a process for chords whose last part was killed before it could send the callback;
# and how many it finds at once.
LOOK_EVERY, CHORDS = 5.0, 20


class Returned(NamedTuple):
    """The return value of a part of a chord."""

    chord: str
    member: str
    place: int
    body: bytes


class Store:
    """Each call is one statement, or one transaction: a crash leaves all of it or nothing. Any thread may call."""

    def __init__(self, url: str) -> None:
        database = tablequeue.connect(url)
        database.close()
        sa_engine = database.engine
        self.engine: Engine = engine_class(sa_engine.dialect.name)(sa_engine.dialect, None)
        self.runner = Runner(sa_engine, self.engine)
        self.url = shown(sa_engine.url)
        self.channels = [self._channel(number) for number in range(CHANNELS)]
        self._next_expiry = monotonic() + EXPIRE_EVERY
        self._next_look = monotonic() + LOOK_EVERY
        self._looked = ""
        create = self.engine.catalogue.create_task_results
        self.runner.run(create, self.channels[0], {}, creating=True)

    def close(self) -> None:
        """Close the connections."""
        self.runner.close()
        self.runner.sa_engine.dispose()

    # -- results -----------------------------------------------------------------------------------------------------

    def put(self, key: str, body: bytes, expires: float | None, success: bool, part: Returned | None = None) -> None:
        """Keep a result, unless the task has succeeded before; in the same transaction, note a part's return value."""
        self._run(
            self.engine.task_results.store_result,
            channel(key),
            key=stored(key),
            body=body,
            success=success,
            expires=expires or FOREVER,
            **(NO_PART if part is None else _noted(part)),
        )
        if monotonic() >= self._next_expiry:
            self.expire()

    def read(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Return the stored results, by their keys."""
        by_id = {stored(key): key for key in keys}
        ids = [*by_id]
        found: dict[str, bytes] = {}
        for start in range(0, len(ids), AT_ONCE):
            found |= self._run(self.engine.task_results.read_results, keys=ids[start : start + AT_ONCE])
        return {by_id[id]: body for id, body in found.items()}

    def forget(self, key: str) -> None:
        self._run(self.engine.task_results.forget_result, key=stored(key))

    def expire(self) -> bool:
        """Delete some expired rows. Return whether there may be more."""
        self._next_expiry = monotonic() + EXPIRE_EVERY
        more = self._run(self.engine.task_results.expire_results, n=AT_ONCE)
        if more:
            self._next_expiry = monotonic() + EXPIRE_AGAIN
        return more

    # -- chords ------------------------------------------------------------------------------------------------------

    def open_chord(self, chord: str, body: bytes | None, expires: float | None) -> None:
        """Begin a chord, or begin it again: earlier return values do not count."""
        operation = self.engine.task_results.open_chord
        self._run(operation, chord=stored(chord), body=body, expires=expires or FOREVER)

    def size_chord(self, chord: str, size: int, expires: float | None) -> None:
        operation = self.engine.task_results.size_chord
        self._run(operation, chord=stored(chord), number=size, expires=expires or FOREVER)

    def add_to_chord(self, chord: str, expires: float | None) -> None:
        self._run(self.engine.task_results.add_to_chord, chord=stored(chord), expires=expires or FOREVER)

    def note(self, part: Returned, expires: float | None) -> None:
        """Note the return value of a part, if it was not noted before."""
        self._run(self.engine.task_results.store_part, **_noted(part), expires=expires or FOREVER)

    def claim(self, chord: str, token: str, lease: float) -> bool:
        """Claim a chord for some seconds, if it is complete and not claimed. Return whether it was."""
        return self._run(self.engine.task_results.claim_chord, chord=stored(chord), token=token, lease=lease)

    def returned(self, chord: str) -> list[bytes]:
        return self._run(self.engine.task_results.chord_parts, chord=stored(chord))

    def end(self, chord: str, token: str, pushes: Sequence[Callable[[Connection], None]]) -> bool:
        """End a chord that was claimed, and push, in one transaction. Return whether the claim lasted until then.

        If not, nothing is pushed.
        """

        def end(cursor: Cursor, table: Table, params: Params) -> bool:
            ended = self.engine.task_results.end_chord(cursor, table, params)
            if ended:
                for push in pushes:
                    push(cursor.connection)
            return ended

        return self._run(end, chord=stored(chord), token=token)

    def abandoned(self) -> list[bytes]:
        """Return the data given with chords that are complete and not claimed; mostly none, and without a read."""
        if monotonic() < self._next_look:
            return []
        self._next_look = monotonic() + LOOK_EVERY
        found = self._run(self.engine.task_results.complete_chords, after_chord=self._looked, n=CHORDS)
        self._looked = found[-1].id if len(found) == CHORDS else ""
        return [chord.body for chord in found]

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self, operation: Callable[[Cursor, Table, Params], T], channel: int = 0, **params: Any) -> T:
        values: Any = {"now": None, **params}
        return self.runner.run(operation, self.channels[channel], values)

    def _channel(self, number: int) -> Table:
        """Return the table that the notifier knows as a channel."""
        table = self.engine.table("results of tasks", Definition(), f"tq{PART}task_results{PART}{number}")
        table.of_results = True
        return table


def stored(key: str) -> str:
    """Return the id under which the database has a key: the key itself, or its hash if it is long or not plain."""
    return key if re.fullmatch("[!-~]{1,64}", key) else hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def channel(key: str) -> int:
    """Return the number of the channel of a key."""
    return crc32(stored(key).encode()) % CHANNELS


def _noted(part: Returned) -> dict[str, Any]:
    return {
        "chord": stored(part.chord),
        "member": stored(part.member),
        "place": part.place,
        "returned": part.body,
    }


_stores: dict[str, Store] = {}
_opening = Lock()


def store_of(url: str) -> Store:
    """Return the store of a URL, which is opened at its first use in the process."""
    with _opening:
        if url not in _stores:
            _stores[url] = Store(url)
        return _stores[url]
