"""A stored message, and a claim on a message. No database here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tablequeue.errors import BadInput, Cancelled
from tablequeue.model.attempts import AttemptError, load_errors
from tablequeue.model.connection import Connection
from tablequeue.model.pacing import LARGEST, Duration
from tablequeue.model.payload import load_headers
from tablequeue.model.states import FailedState, State

if TYPE_CHECKING:  # a claim calls its queue, and type checkers need the queue's type
    from tablequeue.consumer import Consumer

# The columns of a claimed row, in the order that claim and take return them, and their indexes. A row is read by index,
# because a NamedTuple for each message would take 0.5 µs of the 15 µs that a message takes by hundreds on SQLite.
CLAIMED = (
    "id payload headers attempts pushed_at popped_at lease_until priority group_key dedup_key due_at errors".split()
)
(ID, PAYLOAD, HEADERS, ATTEMPTS, PUSHED_AT, POPPED_AT, LEASE_UNTIL, PRIORITY, GROUP, KEY, DUE_AT, ERRORS) = range(
    len(CLAIMED)
)

C = TypeVar("C")

_is_token = re.compile("[0-9a-f]{32}").fullmatch


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A payload with options of its own, for `push_many`: the options of `Queue.push`. None: the option of the call."""

    payload: Any
    delay: Duration | None = None
    due: datetime | None = None
    priority: int | None = None
    group: str | None = None
    key: str | None = None
    headers: Mapping[str, Any] | None = None
    expires: Duration | None = None
    unique_for: Duration | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A message as peek, find, dead and history show it. Times are aware and in UTC.

    payload         what was pushed, or `Unreadable` if the stored payload cannot be read.
    state           ready, scheduled, in_progress, dead or blocked (behind another one of its group). In the history:
                    finished, cancelled or expired; or in_progress, if delivered at most once and not completed.
    attempts        how often it was claimed so far.
    producer        the name of the producer that pushed it; `consumer` the last consumer that popped it.
    due_at          when a scheduled message becomes ready.
    lease_until     when the lease of a message in progress ends.
    key             its deduplication key.
    errors          why its attempts failed: the first 3 errors and the last 7.
    """

    id: int
    payload: Any
    headers: dict[str, Any]
    state: State
    attempts: int
    priority: int
    group: str | None
    key: str | None
    producer: str | None
    consumer: str | None
    pushed_at: datetime
    due_at: datetime | None
    first_popped_at: datetime | None
    popped_at: datetime | None
    lease_until: datetime | None
    finished_at: datetime | None
    errors: tuple[AttemptError, ...]

    @property
    def wait_time(self) -> timedelta | None:
        """Time from the push to the first pop."""
        return self.first_popped_at - self.pushed_at if self.first_popped_at else None

    @property
    def run_time(self) -> timedelta | None:
        """Time from the last pop to the finish."""
        return self.finished_at - self.popped_at if self.finished_at and self.popped_at else None


class Claim:
    """A popped message. No other consumer gets it until the lease ends. Finish it by `complete`, `fail` or `release`.

    These verbs, and `extend`, act only while the claim is held; afterwards they change nothing and raise `LeaseLost`.
    `connection=` and `now=` mean the same in every verb; see `Consumer`.
    """

    # `__slots__`, and the row kept as the driver gave it: a claim is made for every message on the hot path, where
    # converting its times alone would take 2 µs of the 15 that a message takes by hundreds on SQLite.
    __slots__ = ("_cancelled", "id", "payload", "queue", "reported", "row", "token")

    def __init__(self, queue: Consumer, row: Sequence[Any], payload: Any, token: str) -> None:
        self.queue = queue
        """The queue, or the subscription, that it was popped from."""
        self.row = row
        """What the claim returned, in the columns of `CLAIMED`."""
        self.id: int = row[ID]
        self.payload = payload
        self.token = token
        self.reported: tuple[float, float]
        """Of the last write of `progress`: the time on this process's monotonic clock, and the value. Not set before
        the first write."""

    @classmethod
    def of(cls, queue: Consumer, id: int, token: str, attempt: int = 0) -> Self:
        """Make a claim from its id and token alone, as on a command line, to finish it.

        `attempt` is for the backoff of `fail`. `BadInput` for values that no claim can have. Whether the claim is
        held is only known when it is finished.
        """
        checked_id(id)
        checked_token(token)
        if not isinstance(attempt, int) or isinstance(attempt, bool) or not 0 <= attempt <= LARGEST:
            raise BadInput(f"attempt is {attempt!r}.", f"Give a whole number from 0 to {LARGEST}.")
        return cls(queue, (id, None, None, attempt), None, token)

    def __repr__(self) -> str:
        return f"<Claim {self.id} on {self.queue.name}, attempt {self.attempt}>"

    @property
    def headers(self) -> dict[str, Any]:
        """The headers that it was pushed with; empty if there were none."""
        return load_headers(self.row[HEADERS])

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1: how often the message was claimed, this claim included."""
        return self.row[ATTEMPTS]

    @property
    def pushed_at(self) -> datetime:
        """When it was pushed, in UTC."""
        return self._load_time(self.row[PUSHED_AT])

    @property
    def popped_at(self) -> datetime:
        """When it was popped under this claim, in UTC."""
        return self._load_time(self.row[POPPED_AT])

    @property
    def lease_until(self) -> datetime | None:
        """When the lease from `pop` ends; `extend` returns the new end. None where there is no lease."""
        return None if self.row[LEASE_UNTIL] is None else self._load_time(self.row[LEASE_UNTIL])

    @property
    def priority(self) -> int:
        """0 in a queue without priorities."""
        return self.row[PRIORITY]

    @property
    def group(self) -> str | None:
        """Its group, in a queue with groups."""
        return self.row[GROUP] or None

    @property
    def key(self) -> str | None:
        """Its deduplication key, if it has one."""
        return self.row[KEY]

    @property
    def due_at(self) -> datetime | None:
        """When it was due, in UTC: by its push, or by the last retry or release; None if it was ready at once."""
        return None if self.row[DUE_AT] is None else self._load_time(self.row[DUE_AT])

    @property
    def errors(self) -> tuple[AttemptError, ...]:
        """Why its earlier attempts failed: the first 3 errors and the last 7. The errors from before a dead letter
        moved to this queue count."""
        return load_errors(self.row[ERRORS], self._load_time)

    @property
    def cancelled(self) -> bool:
        """Whether the message was cancelled while it was in progress. Asks the database, until it is true.

        Its consumer should stop: `fail`, `release` and an exception then end the message as cancelled, and `complete`
        completes it nevertheless. False if the claim is no longer held.
        """
        # The attribute is not set before: to set it would cost something for each claim.
        if not getattr(self, "_cancelled", False) and self.queue.is_cancelled(self):
            self._cancelled = True
        return getattr(self, "_cancelled", False)

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` if the message was cancelled while it was in progress; see `cancelled`."""
        if self.cancelled:
            raise Cancelled(f"Message {self.id} of {self.queue.name!r} was cancelled.", "Stop working on it.")

    def progress(
        self,
        fraction: float,
        detail: Any = None,
        *,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> None:
        """Report how much of the work on the message is done: `Consumer.progress` returns it until the claim ends.

        fraction          from 0 to 1.
        detail            a JSON value beside it, for people or for a program, such as `{"row": 4000}`.
        connection, now   see `Consumer`. In a transaction of the caller's others see it after the commit.

        At most one write a second. Other calls are dropped, except the first call of a claim, a call that reports 1,
        and any call after one in a caller's transaction. The last call may not be seen. The first report in a queue
        makes a table.

        `LeaseLost`, and no change, if the claim is no longer held; a call that is dropped does not look. `BadInput`
        where delivery is at most once, in subscriptions that are not ordered, and on SQL Server.
        """
        self.queue.report_progress(self, fraction, detail, connection=connection, now=now)

    def complete(
        self, *, result: Any = None, connection: Connection | None = None, now: datetime | None = None
    ) -> None:
        """Complete the message: it moves to the history, or is deleted if the queue keeps none.

        result   in a queue with `results`: a JSON value, which is kept in the same transaction. None: no result.

        `LeaseLost`, and no change, if the claim is no longer held.
        """
        self.queue.complete(self, result=result, connection=connection, now=now)

    def fail(
        self,
        error: str | BaseException = "",
        *,
        retry_in: Duration | None = None,
        retry: bool = True,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> FailedState:
        """Fail the attempt: keep the error, and retry the message later.

        error      a string, or an exception whose traceback is kept. Of a long text the beginning and the end are kept:
                   see `AttemptError`, also for the number of errors that are kept.
        retry_in   time until the message is ready again: seconds, or a timedelta; the queue's backoff if not given.
        retry      False: do not retry. The message becomes a dead letter now, as it does after its last attempt.
        connection, now   see `Consumer`.

        Returns the new state of the message: `scheduled`, `ready` or `dead`; `cancelled` if it was cancelled meanwhile;
        `lost` where delivery is at most once.
        `LeaseLost`, and no change, if the claim is no longer held.
        """
        return self.queue.fail(self, error, retry_in=retry_in, retry=retry, connection=connection, now=now)

    def release(
        self, *, delay: Duration = 0, connection: Connection | None = None, now: datetime | None = None
    ) -> None:
        """Give the message back unprocessed: it is ready after `delay` (seconds, or a timedelta).

        The attempt does not count. `LeaseLost`, and no change, if the claim is no longer held. `BadInput` where
        delivery is at most once.
        """
        self.queue.release(self, delay=delay, connection=connection, now=now)

    def extend(
        self, lease: Duration | None = None, *, connection: Connection | None = None, now: datetime | None = None
    ) -> datetime:
        """Have the lease end `lease` seconds (or a timedelta) from now, and return its new end.

        The lease of the queue if none is given. With 0 the lease is lost, and the message is ready when the call
        returns; its attempt counts. With `connection=` it becomes ready after the commit, when a claim of any consumer
        next sweeps the queue. `LeaseLost`, and no change, if the claim is no longer held. `BadInput` where delivery is
        at most once.
        """
        return self.queue.extend(self, lease, connection=connection, now=now)

    def _load_time(self, value: Any) -> datetime:
        return self.queue._context.engine.load_time(value)  # noqa: SLF001 -- `ext` is above this file


def note_cancelled(claim: Claim) -> None:
    """Let `cancelled` be true without asking the database. For a worker that has asked for many messages."""
    claim._cancelled = True  # noqa: SLF001  (a slot of this module's own class)


def checked_id(id: int, of: str = "message", source: str = "push returned") -> int:
    """Return the id, if a bigint can hold it; else `BadInput`, which names the kind of id and the call that returns
    one."""
    if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id < 1 << 63:
        raise BadInput(f"{id!r} is not the id of a {of}.", f"Give the id that {source}.")
    return id


def checked_claims(claims: Any, kind: type[C]) -> tuple[C, ...]:
    """Return claims in a tuple; `BadInput` for anything else."""
    found = tuple(claims) if isinstance(claims, Iterable) else (claims,)
    for claim in found:
        if not isinstance(claim, kind):
            raise BadInput(
                f"{claim!r} is no claim of a message.",
                f"Give what pop or pop_many returned; {kind.__name__}.of makes a claim of an id and its token.",
            )
    return found


def checked_token(token: str) -> str:
    """Return the token, if a pop can have made it; else `BadInput`."""
    if isinstance(token, str) and _is_token(token):
        return token
    if token == "":
        raise BadInput(
            "A message that was taken is finished by the transaction it was taken in.",
            "Commit that transaction to finish it, or roll it back to put the message back.",
        )
    raise BadInput(f"{token!r} is not the token of a claim.", "Give the 32 characters that pop returned.")


__all__ = ["Claim", "FailedState", "Message", "NewMessage", "State"]
