"""A queue and its verbs, in reading order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, Literal, overload

from tablequeue import telemetry
from tablequeue.definition import Definition
from tablequeue.errors import BadInput, BadPayload, Empty
from tablequeue.message import Claim, Message
from tablequeue.operations import claim, finish, inspect, maintain, push, stats, unreadable
from tablequeue.operations.complete_and_claim import complete_and_claim
from tablequeue.operations.desk import Desk, seconds
from tablequeue.operations.maintain import Which
from tablequeue.operations.push import Delay, Options
from tablequeue.operations.stats import Stats
from tablequeue.operations.wait import INFINITE, Waiter

OnConflict = Literal["raise", "skip", "return"]


class Queue:
    """A queue. Made by `Database.create_queue` or `Database.queue`; safe to share between threads.

    Every verb that writes takes `connection=`, a SQLAlchemy Connection or Session or a DB-API connection: it then
    acts inside that transaction and never commits it. Every verb that reads the clock takes `now=`, an aware time
    that stands in for the database's clock; production passes none. Every refusal is a `TablequeueError`.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.load_time = desk.engine.load_time

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    @property
    def name(self) -> str:
        return self._desk.table.name

    @property
    def definition(self) -> Definition:
        return self._desk.table.definition

    # -- producing -------------------------------------------------------------------------------------------------

    @overload
    def push(
        self,
        payload: Any,
        *,
        delay: Delay | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        key: str | None = None,
        on_conflict: Literal["raise", "return"] = "raise",
        headers: Mapping[str, Any] | None = None,
        connection: Any = None,
        now: datetime | None = None,
    ) -> int: ...
    @overload
    def push(
        self,
        payload: Any,
        *,
        delay: Delay | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        key: str | None = None,
        on_conflict: OnConflict,
        headers: Mapping[str, Any] | None = None,
        connection: Any = None,
        now: datetime | None = None,
    ) -> int | None: ...
    def push(
        self,
        payload: Any,
        *,
        delay: Delay | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        key: str | None = None,
        on_conflict: OnConflict = "raise",
        headers: Mapping[str, Any] | None = None,
        connection: Any = None,
        now: datetime | None = None,
    ) -> int | None:
        """Push one message and return its id. When this has returned, the message survives every client's death.

        delay, due   it is ready at once, or after `delay` seconds, or at `due` (an aware datetime).
        priority     in a queue that goes by priority: the highest number first; 0 if not given.
        group        in a queue with groups: its group.
        key          a deduplication key, unique among the messages of the queue that are not finished. If it is
                     taken, nothing is pushed, and `on_conflict` says what happens: `raise` DuplicateKey, `skip`
                     (return None), or `return` the id of the message that has it.
        headers      a dict of JSON values kept beside the payload.

        `BadPayload` if the queue's payload type cannot hold the payload exactly.
        """
        options = Options(delay, due, priority, group, headers)
        return push.push(self._desk, payload, options, key, on_conflict, now, connection)

    @overload
    def push_many(
        self,
        payloads: Iterable[Any],
        *,
        delay: Delay | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        on_conflict: Literal["raise", "return"] = "raise",
        headers: Mapping[str, Any] | None = None,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[int]: ...
    @overload
    def push_many(
        self,
        payloads: Iterable[Any],
        *,
        delay: Delay | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        on_conflict: OnConflict,
        headers: Mapping[str, Any] | None = None,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[int | None]: ...
    def push_many(
        self,
        payloads: Iterable[Any],
        *,
        delay: Delay | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        on_conflict: OnConflict = "raise",
        headers: Mapping[str, Any] | None = None,
        connection: Any = None,
        now: datetime | None = None,
    ) -> Any:
        """Push all of `payloads` in one transaction, or none; return the ids, aligned with the input.

        The options hold for every message; a `NewMessage` among the payloads has options of its own, a `key` too.
        With `on_conflict="skip"` the result is None for each message whose key is taken, also by an earlier one of
        the same call. The input is encoded in memory first; push a stream in pieces.
        """
        options = Options(delay, due, priority, group, headers)
        return push.push_many(self._desk, payloads, options, on_conflict, now, connection)

    # -- consuming -------------------------------------------------------------------------------------------------

    def pop(
        self,
        *,
        lease: float | None = None,
        completing: Claim | None = None,
        connection: Any = None,
        now: datetime | None = None,
    ) -> Claim | None:
        """Claim the next message for `lease` seconds (the queue's lease if not given), or None if none is ready.

        Nobody else gets the message while the lease holds. If this process dies, it comes back when the lease ends.
        In a queue that delivers at most once it is nobody's again, and `lost` finds it.

        completing   the message before it, which is done: `complete` in the same transaction, for half the time. If
                     its claim is not held, `LeaseLost`, and nothing is claimed.
        """
        done = () if completing is None else (completing,)
        messages = self.pop_many(1, lease=lease, completing=done, connection=connection, now=now)
        return messages[0] if messages else None

    def pop_many(
        self,
        n: int,
        *,
        lease: float | None = None,
        completing: Iterable[Claim] = (),
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[Claim]:
        """Claim up to `n` messages in one round trip, in the queue's order; an empty list if none is ready.

        completing   the batch before it, as in `complete_many`: after `LeaseLost` the others are done, and nothing is
                     claimed.
        """
        done = tuple(completing)
        while True:
            if done:
                token, rows = complete_and_claim(self._desk, done, n, lease, now, connection)
            else:
                token, rows = claim.claim(self._desk, n, lease, now, connection)
            claims = self._claims(token, rows, now, connection)
            if claims or not rows:
                return claims
            done = ()  # nothing of what was claimed can be read, and perhaps there is more

    def take(self, connection: Any, *, now: datetime | None = None) -> Claim | None:
        """Remove the next message in the transaction of `connection`, or None if none is ready.

        It is finished when that transaction commits, exactly once with all that is done in it, and back where it was
        after a rollback. Until then nobody else gets it.
        """
        messages = self.take_many(1, connection, now=now)
        return messages[0] if messages else None

    def take_many(self, n: int, connection: Any, *, now: datetime | None = None) -> list[Claim]:
        """Remove up to `n` messages in the transaction of `connection`, in the queue's order, as `take` does."""
        while rows := claim.take(self._desk, n, now, connection):
            if claims := self._claims("", rows, now, connection):
                return claims
        return []

    def complete(self, message: Claim, *, connection: Any = None, now: datetime | None = None) -> None:
        """The message is done: it moves to the history. `LeaseLost`, and no change, if the claim is not held."""
        finish.complete(self._desk, (message,), now, connection)

    def complete_many(self, messages: Iterable[Claim], *, connection: Any = None, now: datetime | None = None) -> None:
        """Complete all messages of a batch in one round trip.

        Those whose claim is not held any more are left alone, and `LeaseLost.ids` names them; the others are done.
        """
        finish.complete(self._desk, messages, now, connection)

    def fail(
        self,
        message: Claim,
        error: str | BaseException = "",
        *,
        retry_in: float | None = None,
        retry: bool = True,
        connection: Any = None,
        now: datetime | None = None,
    ) -> str:
        """The attempt failed: keep the error (of an exception, its traceback) and try again later.

        The message is ready again after `retry_in` seconds, or the queue's backoff; after its last attempt, or without
        `retry`, it is a dead letter. Returns the new state: `scheduled`, `ready` or `dead`; `lost` where delivery is
        at most once. `LeaseLost` if the claim is not held.
        """
        return finish.fail(self._desk, message, error, retry_in, retry, now, connection)

    def release(self, message: Claim, *, delay: float = 0, connection: Any = None, now: datetime | None = None) -> None:
        """Give the message back unworked, ready after `delay` seconds; the attempt does not count."""
        finish.release(self._desk, (message,), delay, now, connection)

    def release_many(
        self, messages: Iterable[Claim], *, delay: float = 0, connection: Any = None, now: datetime | None = None
    ) -> None:
        """Give a batch back unworked, as `release` does; `LeaseLost.ids` names those not held any more."""
        finish.release(self._desk, messages, delay, now, connection)

    def extend(
        self, message: Claim, seconds: float | None = None, *, connection: Any = None, now: datetime | None = None
    ) -> datetime:
        """Hold the message for `seconds` from now (the queue's lease if not given); return when that ends."""
        return finish.extend(self._desk, message, seconds, now, connection)

    @contextmanager
    def receive(self, *, wait: float = 0, lease: float | None = None) -> Iterator[Claim]:
        """Pop one message for a `with` block: completed when the block ends, failed when it raises.

        Waits up to `wait` seconds for a message, then raises `Empty`. An exception fails the message with its
        traceback and goes on to the caller; KeyboardInterrupt and SystemExit release the message instead (where
        delivery is at most once they fail it too).
        """
        message = next(self.consume(wait=wait, lease=lease), None)
        if message is None:
            raise Empty(f"No message became ready in {self.name!r} within {wait} s.", "Wait longer, or push one.")
        try:
            with telemetry.processing(self.name, (message,)):
                yield message
        except Exception as error:
            message.fail(error)
            raise
        except BaseException as interrupt:
            self._let_go((message,), interrupt)
            raise
        message.complete()

    def consume(self, *, wait: float | None = None, lease: float | None = None, prefetch: int = 1) -> Iterator[Claim]:
        """Iterate over messages as they become ready; finishing each is yours (`complete`, `fail`, `release`).

        Ends after `wait` seconds without a message; None waits for ever. Claims `prefetch` messages at a time, and
        releases those not yet handed over when the iteration is closed.
        """
        limit = INFINITE if wait is None else seconds(wait, "wait")
        self._check_prefetch(prefetch)
        idle_since = monotonic()
        with self.waiter() as waiter:
            while True:
                if batch := self.pop_many(prefetch, lease=lease):
                    waiter.found()
                    yield from self._hand_over(batch)
                    idle_since = monotonic()
                    continue
                left = limit - (monotonic() - idle_since)
                if left <= 0:
                    return
                waiter.wait(left)

    def waiter(self, longest_pause: float | None = None, ring: Callable[[], None] | None = None) -> Waiter:
        """Waits for messages between the pops of a loop of your own, as `consume` does; see operations/wait.py."""
        return Waiter(self._desk, longest_pause, ring)

    # -- looking ---------------------------------------------------------------------------------------------------

    def peek(self, limit: int = 10, *, state: str = "ready", after: int = 0) -> list[Message]:
        """The first messages in a state (ready, scheduled, in_progress, dead, blocked) with ids above `after`.

        By id, whatever the order of the queue; claiming none.
        """
        return inspect.peek(self._desk, limit, state, after)

    def find(self, id: int) -> Message | None:
        """The live message of that id, whatever its state; None if it was finished or never pushed."""
        return inspect.find(self._desk, id)

    def stats(self, *, window: float | timedelta | None = None, now: datetime | None = None) -> Stats:
        """How many messages are in each state, and the age of the first ready one, exact; and how many are finished,
        from 100,000 on an estimate.

        With `window`, also what was pushed and finished in the last so many seconds (at least 1), by whom, how fast and
        with which wait and run times: of the last 50,000 messages, if there were more. `Stats.estimated` says what is
        not exact. Each is a read of its own, from an index, that locks nothing.
        """
        return stats.stats(self._desk, window, now)

    def lost(
        self, limit: int = 100, *, older_than: float | timedelta | None = None, now: datetime | None = None
    ) -> list[Message]:
        """The first messages delivered at most once that nobody has completed, by id, with the errors of `fail`.

        Those popped `older_than` seconds ago or longer (the queue's lease if not given): the others may yet be done.
        """
        return inspect.lost(self._desk, limit, older_than, now)

    def history(self, limit: int = 100, *, before: int | None = None) -> list[Message]:
        """The last `limit` messages that left the queue with ids below `before`, highest id first.

        `BadInput` if the queue keeps none.
        """
        return inspect.history(self._desk, limit, before)

    def history_bounds(self) -> tuple[int, int] | None:
        """The lowest and the highest id in the history; None if it is empty."""
        return inspect.history_bounds(self._desk)

    def history_batches(self, low: int, high: int, size: int) -> Iterator[list[Sequence[Any]]]:
        """Finished messages with ids from `low` to `high`, highest first, for bulk readers.

        Lists of up to `size` raw rows, in the columns of `Message` and as the driver gives them. Each list is a read
        of its own: no snapshot stays open between them.
        """
        return inspect.history_batches(self._desk, low, high, size)

    # -- keeping ---------------------------------------------------------------------------------------------------

    def dead(self, limit: int = 100, *, after: int = 0) -> list[Message]:
        """The first dead letters with ids above `after`, by id, each with every error."""
        return inspect.peek(self._desk, limit, "dead", after)

    def redrive(self, which: Which = None, *, now: datetime | None = None) -> int:
        """Dead letters become ready with all attempts before them; their errors stay. Returns how many.

        which   their ids, or a function of a `Message` that is true for them; all if not given.
        """
        return maintain.redrive(self._desk, which, now)

    def purge_dead(self, which: Which = None) -> int:
        """Delete dead letters, chosen as in `redrive`. Returns how many."""
        return maintain.purge_dead(self._desk, which)

    def purge_history(self, older_than: float | timedelta, *, now: datetime | None = None) -> int:
        """Delete what was finished, or lost, `older_than` seconds ago or longer, a thousand at a time; how many."""
        return maintain.purge_history(self._desk, older_than, now)

    def purge(self) -> int:
        """Delete every message that waits (ready, scheduled or blocked), a thousand at a time; return how many.

        Messages in progress, dead letters and the history stay. A crash keeps what was deleted before it.
        """
        return maintain.purge(self._desk, ("blocked", "ready", "scheduled"))

    def drop(self) -> None:
        """Drop the queue, its messages and its history, whoever uses it."""
        maintain.drop(self._desk)

    # -- private ---------------------------------------------------------------------------------------------------

    def _claims(self, token: str, rows: Sequence[Sequence[Any]], now: datetime | None, connection: Any) -> list[Claim]:
        """Those of them whose payloads can be read; each of the others is buried."""
        load = self._desk.codec.load
        try:
            return [Claim(self, row, load(row[1]), token) for row in rows]
        except BadPayload:
            return [
                Claim(self, row, payload, token)
                for row, payload in unreadable.readable(self._desk, token, rows, now, connection)
            ]

    def _check_prefetch(self, prefetch: int) -> None:
        if prefetch != 1 and self.definition.delivery == "at_most_once":
            raise BadInput(
                "prefetch does not go with at_most_once: what is not handed over would be lost.", "Leave prefetch out."
            )

    def _let_go(self, messages: Sequence[Claim], why: BaseException) -> None:
        """Of messages that nobody works on: give them back; fail them where delivery is at most once."""
        if self.definition.delivery == "at_most_once":
            for message in messages:
                message.fail(why)
        else:
            self.release_many(messages)

    def _hand_over(self, batch: list[Claim]) -> Iterator[Claim]:
        handed = 0
        try:
            for message in batch:
                handed += 1
                yield message
        finally:
            if handed < len(batch):
                self.release_many(batch[handed:])
