"""The ledger: the calls of each client and their results, in a file of its own outside the database.

A client writes a line before each operation and one after it. So every operation is recorded before it can have an
effect. If its second line is missing, because the client was killed, its effect is unknown.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import count
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from tablequeue import Claim, TablequeueError
from tablequeue.errors import ConnectionLost, DatabaseError, Unreachable

# Outcomes of an operation. The first two are reported by the library. Of the others, only the beginning is known.
DONE, REFUSED, CANCELLED, UNKNOWN, PENDING = "done", "refused", "cancelled", "unknown", "pending"


@dataclass(frozen=True)
class New:
    """A message that is pushed. `uid` is in its payload and is unique."""

    uid: str
    group: str | None = None
    key: str | None = None
    priority: int = 0
    delay: float = 0


@dataclass(frozen=True)
class Got:
    """A message that was popped or taken. `intact`: it came as it was pushed."""

    id: int
    uid: str
    token: str
    attempts: int
    intact: bool = True


@dataclass(frozen=True)
class Op:
    """One operation of a client: from before it began until it had returned, in seconds of the machine's own clock.

    verb    push, pop, take, complete, fail, release, extend, redrive, consume, commit, rollback; of the run itself:
            born, kill, stop, server, stall, hung, crashed.
    txn     the transaction of the client's own in which it happened, if there was one.
    since   of a pop: when the claim may have been made at the earliest, if that is before `begin`.
    held    the claims that it finishes (also those of a pop with `completing=`): id and token.
    lost    those of them that it was refused, by id.
    delay   of fail and release: seconds until the message is ready again, at the most; `soonest` at the least.
    by      the verb of the library, if it is another one (consume, receive).
    kept    of a pop: the lease is extended by somebody (a worker) until the claim is finished.
    """

    name: str
    who: str
    verb: str
    begin: float
    end: float = inf
    outcome: str = PENDING
    queue: str = ""
    txn: str = ""
    error: str = ""
    text: str = ""
    new: tuple[New, ...] = ()
    ids: tuple[int | None, ...] = ()
    conflict: str = "raise"
    n: int = 1
    got: tuple[Got, ...] = ()
    lease: float = 0
    since: float = inf
    wait: float = 0
    kept: bool = False
    held: tuple[tuple[int, str], ...] = ()
    lost: tuple[int, ...] = ()
    delay: float = 0
    soonest: float = 0
    state: str = ""
    seconds: float = 0
    whom: str = ""
    by: str = ""

    @property
    def earliest(self) -> float:
        return min(self.since, self.begin)


class Note:
    """The result of an operation, to be written with its end."""

    def __init__(self) -> None:
        self.words: dict[str, Any] = {}

    def pushed(self, ids: Any) -> None:
        self.words["ids"] = ids if isinstance(ids, list) else [ids]

    def got(self, claims: list[Any]) -> None:
        self.words["got"] = [got_of(claim) for claim in claims]

    def state(self, state: str) -> None:
        self.words["state"] = state


def payload_of(uid: str, size: int) -> dict[str, str]:
    return {"uid": uid, "fill": filling(uid, size)}


def filling(uid: str, size: int) -> str:
    return (uid * (size // len(uid) + 1))[:size]


def got_of(claim: Claim | Any) -> list[Any]:
    uid, fill = claim.payload["uid"], claim.payload["fill"]
    return [claim.id, uid, claim.token, claim.attempt, fill == filling(uid, len(fill))]


class Ledger:
    """The ledger of one process. A forked process opens one of its own."""

    def __init__(self, folder: Path, who: str) -> None:
        self.folder, self.who = folder, who
        self._file = os.open(folder / f"{who}.jsonl", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        self._count = count()

    def begin(self, verb: str, **words: Any) -> str:
        """Record the beginning of an operation. Returns its name for `end`."""
        name = f"{self.who}#{next(self._count)}"
        self._write({"op": name, "begin": monotonic(), "who": self.who, "verb": verb, **words})
        return name

    def end(self, name: str, outcome: str = DONE, **words: Any) -> None:
        """Record the result. The time is taken here, after the return."""
        self._write({"op": name, "end": monotonic(), "outcome": outcome, **words})

    @contextmanager
    def op(self, verb: str, **words: Any) -> Iterator[Note]:
        """Record the block: its beginning, and its result or exception."""
        note = Note()
        name = self.begin(verb, **words)
        try:
            yield note
        except BaseException as error:
            self.end(name, outcome_of(error), **note.words, **_described(error))
            raise
        self.end(name, **note.words)

    def end_with(self, error: BaseException, name: str) -> None:
        self.end(name, outcome_of(error), **_described(error))

    def _write(self, words: dict[str, Any]) -> None:
        # One system call for each line, so lines of threads do not mix, and a line is in the file when this returns.
        os.write(self._file, json.dumps(words).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def outcome_of(error: BaseException) -> str:
    if isinstance(error, (ConnectionLost, DatabaseError, Unreachable)):
        return UNKNOWN
    if isinstance(error, TablequeueError):
        return REFUSED  # nothing was changed, except the other messages of a batch if some leases were lost
    return UNKNOWN if isinstance(error, Exception) else CANCELLED


def _described(error: BaseException) -> dict[str, Any]:
    words: dict[str, Any] = {"error": type(error).__name__, "text": str(error)[:400]}
    if not isinstance(error, TablequeueError) and isinstance(error, Exception):
        words["error"] = f"{type(error).__module__}.{type(error).__name__}"
    lost = getattr(error, "ids", None)
    return words | ({"lost": list(lost)} if lost else {})


def read(folder: Path) -> list[Op]:
    """Return all operations of a folder of ledgers, by the time of their beginning."""
    merged: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            # A line without an end was being written when its client died, and is ignored.
            if line.endswith(b"\n"):
                words = json.loads(line)
                merged.setdefault(words["op"], {}).update(words)
    # An end without a beginning is impossible, because the beginning is written first.
    return sorted((_op(words) for words in merged.values()), key=lambda op: op.begin)


_FIELDS = frozenset(field.name for field in fields(Op))


def _op(words: dict[str, Any]) -> Op:
    values = {name: value for name, value in words.items() if name in _FIELDS and value is not None}
    values["name"] = words["op"]
    values["new"] = tuple(New(*each) for each in words.get("new", ()))
    values["got"] = tuple(Got(*each) for each in words.get("got", ()))
    values["held"] = tuple((id, token) for id, token in words.get("held", ()))
    for name in ("ids", "lost"):
        values[name] = tuple(words.get(name, ()))
    return Op(**values)
