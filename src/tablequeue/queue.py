"""A queue and its verbs, in reading order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from time import monotonic, sleep
from typing import Any

from tablequeue.definition import Definition
from tablequeue.errors import Empty
from tablequeue.message import Claim, Message
from tablequeue.operations import claim, finish, inspect, maintain, push
from tablequeue.operations.desk import Desk, seconds
from tablequeue.operations.inspect import Stats
from tablequeue.operations.push import Delay

# Waiting for a message: the pauses between two looks, from the first to the longest, in seconds.
SHORTEST_PAUSE = 0.01
LONGEST_PAUSE = 0.5


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

    def push(
        self,
        payload: Any,
        *,
        delay: Delay | None = None,
        due: datetime | None = None,
        headers: Mapping[str, Any] | None = None,
        connection: Any = None,
        now: datetime | None = None,
    ) -> int:
        """Push one message and return its id. When this has returned, the message survives every client's death.

        It is ready at once, or after `delay` seconds, or at `due` (an aware datetime). `headers` is a dict of JSON
        values kept beside the payload. `BadPayload` if the queue's payload type cannot hold the payload exactly.
        """
        return push.push(self._desk, payload, delay, due, headers, now, connection)

    def push_many(
        self,
        payloads: Iterable[Any],
        *,
        delay: Delay | None = None,
        due: datetime | None = None,
        headers: Mapping[str, Any] | None = None,
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[int]:
        """Push all of `payloads` in one transaction, or none; return the ids, aligned with the input.

        The options hold for every message. The input is encoded in memory first; push a stream in pieces.
        """
        return push.push_many(self._desk, payloads, delay, due, headers, now, connection)

    # -- consuming -------------------------------------------------------------------------------------------------

    def pop(self, *, lease: float | None = None, connection: Any = None, now: datetime | None = None) -> Claim | None:
        """Claim the next message for `lease` seconds (the queue's lease if not given), or None if none is ready.

        Nobody else gets the message while the lease holds. If this process dies, it comes back when the lease ends.
        """
        token, rows = claim.claim(self._desk, 1, lease, now, connection)
        return self._claims(token, rows)[0] if rows else None

    def pop_many(
        self, n: int, *, lease: float | None = None, connection: Any = None, now: datetime | None = None
    ) -> list[Claim]:
        """Claim up to `n` messages in one round trip, in the queue's order; an empty list if none is ready."""
        return self._claims(*claim.claim(self._desk, n, lease, now, connection))

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
        connection: Any = None,
        now: datetime | None = None,
    ) -> str:
        """The attempt failed: keep the error (of an exception, its traceback) and try again later.

        The message is ready again after `retry_in` seconds, or the queue's backoff; after its last attempt it is a
        dead letter. Returns the new state: `scheduled`, `ready` or `dead`. `LeaseLost` if the claim is not held.
        """
        return finish.fail(self._desk, message, error, retry_in, now, connection)

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
        traceback and goes on to the caller; KeyboardInterrupt and SystemExit release the message instead.
        """
        message = next(self.consume(wait=wait, lease=lease), None)
        if message is None:
            raise Empty(f"No message became ready in {self.name!r} within {wait} s.", "Wait longer, or push one.")
        try:
            yield message
        except Exception as error:
            message.fail(error)
            raise
        except BaseException:
            message.release()
            raise
        message.complete()

    def consume(self, *, wait: float | None = None, lease: float | None = None, prefetch: int = 1) -> Iterator[Claim]:
        """Iterate over messages as they become ready; finishing each is yours (`complete`, `fail`, `release`).

        Ends after `wait` seconds without a message; None waits for ever. Claims `prefetch` messages at a time, and
        releases those not yet handed over when the iteration is closed.
        """
        limit = None if wait is None else seconds(wait, "wait")
        idle_since, pause = monotonic(), SHORTEST_PAUSE
        while True:
            batch = self.pop_many(prefetch, lease=lease)
            if batch:
                yield from self._hand_over(batch)
                idle_since, pause = monotonic(), SHORTEST_PAUSE
                continue
            left = pause if limit is None else limit - (monotonic() - idle_since)
            if left <= 0:
                return
            sleep(min(pause, left))
            pause = min(pause * 2, LONGEST_PAUSE)

    # -- looking ---------------------------------------------------------------------------------------------------

    def peek(self, limit: int = 10, *, state: str = "ready") -> list[Message]:
        """The first messages in a state (ready, scheduled, in_progress, dead), by id, claiming none."""
        return inspect.peek(self._desk, limit, state)

    def find(self, id: int) -> Message | None:
        """The live message of that id, whatever its state; None if it was finished or never pushed."""
        return inspect.find(self._desk, id)

    def stats(self, *, now: datetime | None = None) -> Stats:
        """How many messages are in each state, and the age of the first ready one. Exact."""
        return inspect.stats(self._desk, now)

    def history(self, limit: int = 100) -> list[Message]:
        """The last `limit` finished messages, highest id first. `BadInput` if the queue keeps none."""
        return inspect.history(self._desk, limit)

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

    def dead(self, limit: int = 100) -> list[Message]:
        """The first dead letters, by id, each with every error."""
        return inspect.peek(self._desk, limit, "dead")

    def redrive(self, ids: Sequence[int] | None = None) -> int:
        """Dead letters become ready with all attempts before them: those of `ids`, or all. Returns how many."""
        return maintain.redrive(self._desk, ids)

    def purge_dead(self, ids: Sequence[int] | None = None) -> int:
        """Delete dead letters: those of `ids`, or all. Returns how many."""
        return maintain.purge_dead(self._desk, ids)

    def purge(self) -> int:
        """Delete every ready and scheduled message, a thousand at a time; return how many.

        Messages in progress, dead letters and the history stay. A crash keeps what was deleted before it.
        """
        return maintain.purge(self._desk, ("ready", "scheduled"))

    def drop(self) -> None:
        """Drop the queue, its messages and its history, whoever uses it."""
        maintain.drop(self._desk)

    # -- private ---------------------------------------------------------------------------------------------------

    @staticmethod
    def load_headers(value: Any) -> dict[str, Any]:
        return inspect.load_json(value) or {}

    def _claims(self, token: str, rows: Sequence[Sequence[Any]]) -> list[Claim]:
        load = self._desk.codec.load
        return [Claim(self, row[0], load(row[1]), row[2], row[3], row[4:], token) for row in rows]

    def _hand_over(self, batch: list[Claim]) -> Iterator[Claim]:
        handed = 0
        try:
            for message in batch:
                handed += 1
                yield message
        finally:
            if handed < len(batch):
                self.release_many(batch[handed:])
