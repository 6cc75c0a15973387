"""A queue: the verbs of a consumer, and the verbs that push, take and move."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack, overload

from tablequeue.consumer import Consumer
from tablequeue.model.batch import OnDead
from tablequeue.model.connection import Connection
from tablequeue.model.message import Claim, Message
from tablequeue.model.pacing import Duration
from tablequeue.model.states import WAITING_STATES, LiveState
from tablequeue.verbs import batches, claim, inspect, maintain, move, push
from tablequeue.verbs import results as kept
from tablequeue.verbs.batches import Batch, Callback, MoreOfBatch, NewBatch, OpenBatch
from tablequeue.verbs.claim import SameGroup
from tablequeue.verbs.dependencies import Dependency, push_after, push_many_after, refuse_on_dead
from tablequeue.verbs.maintain import Which
from tablequeue.verbs.move_between import Moved
from tablequeue.verbs.push import OnConflict, Options


class MessageOptions(TypedDict, total=False):
    """The options of a push about its messages; `Queue.push` explains them."""

    delay: Duration | None
    due: datetime | None
    priority: int | None
    group: str | None
    unique_for: Duration | None
    headers: Mapping[str, Any] | None
    expires: Duration | None
    after: Iterable[Dependency] | None
    on_dead: OnDead
    now: datetime | None


class PushOptions(MessageOptions, total=False):
    """The options that `Queue.push` and `Queue.push_many` have in common; `Queue.push` explains them."""

    connection: Connection | None


class Queue(Consumer):
    """A queue. Made by `Database.create_queue` or `Database.queue`; safe to share between threads.

    `connection=`, `now=` and durations mean the same in every verb; see `Consumer`.
    """

    # -- producing -----------------------------------------------------------------------------------------------------

    @overload
    def push(
        self,
        payload: Any,
        *,
        key: str | None = None,
        on_conflict: Literal["raise", "return", "renew"] = "raise",
        **options: Unpack[PushOptions],
    ) -> int: ...
    @overload
    def push(
        self, payload: Any, *, key: str | None = None, on_conflict: OnConflict, **options: Unpack[PushOptions]
    ) -> int | None: ...
    def push(
        self,
        payload: Any,
        *,
        delay: Duration | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        key: str | None = None,
        unique_for: Duration | None = None,
        on_conflict: OnConflict = "raise",
        headers: Mapping[str, Any] | None = None,
        expires: Duration | None = None,
        after: Iterable[Dependency] | None = None,
        on_dead: OnDead = "wait",
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> int | None:
        """Push one message and return its id. When this has returned, the message survives every client's death.

        delay, due   when it becomes ready: after `delay` (seconds, or a timedelta), or at `due` (an aware datetime); at
                     once if neither is given.
        priority     in a queue of the order `priority`: the highest number is claimed first; 0 if not given.
        group        in a queue with groups: the group of the message.
        key          a deduplication key, unique among the messages of the queue that are not finished. If it is
                     taken, nothing is pushed, and `on_conflict` says what happens: `raise` DuplicateKey, `skip`
                     (return None), or `return` the id of the message that has it. `renew` returns it too, and in a
                     queue with `unique_for` takes an expired key from a message that is not finished.
        unique_for   in a queue with `unique_for`: how long after the push the key stays taken, even when the message is
                     finished: seconds, or a timedelta; the queue's if not given.
        headers      a dict of JSON values kept beside the payload.
        expires      in a queue with `expires`: the time from the push until it expires, in seconds or as a timedelta;
                     the queue's if not given.
        after        in a queue with `dependencies`: the messages to wait for: ids of this queue, pairs of another
                     queue's name and an id, or claims. It is scheduled until all of them have left their queues:
                     finished, cancelled, expired or deleted. `delay` begins then. `BadInput` for an id that no message
                     has.
        on_dead      what happens if one of them becomes a dead letter: `wait` until that is redriven and finished, or
                     purged; `continue`, as if it were finished; or `cancel` this message too.
        connection, now   see `Consumer`.

        `BadPayload` if the queue's payload type cannot hold the payload exactly.
        """
        options = Options(delay, due, priority, group, headers, expires, unique_for)
        if after is not None:
            return push_after(
                self._context.current(connection), payload, options, key, on_conflict, after, on_dead, now, connection
            )
        if on_dead != "wait":
            refuse_on_dead(on_dead)
        return push.push(self._context.current(connection), payload, options, key, on_conflict, now, connection)

    @overload
    def push_many(
        self,
        payloads: Iterable[Any],
        *,
        on_conflict: Literal["raise", "return", "renew"] = "raise",
        **options: Unpack[PushOptions],
    ) -> list[int]: ...
    @overload
    def push_many(
        self, payloads: Iterable[Any], *, on_conflict: OnConflict, **options: Unpack[PushOptions]
    ) -> list[int | None]: ...
    def push_many(
        self,
        payloads: Iterable[Any],
        *,
        delay: Duration | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        unique_for: Duration | None = None,
        on_conflict: OnConflict = "raise",
        headers: Mapping[str, Any] | None = None,
        expires: Duration | None = None,
        after: Iterable[Dependency] | None = None,
        on_dead: OnDead = "wait",
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> Any:
        """Push all of `payloads` in one transaction, or none; return the ids, aligned with the input.

        The options apply to every message. A `NewMessage` among the payloads has options of its own, and may have a
        `key`. With `on_conflict="skip"` the result is None for each message with a taken key, also one taken by an
        earlier message of the same call. With `after` each message waits for all messages given there, as in `push`.
        The input is encoded in memory first; push a stream in pieces.
        """
        options = Options(delay, due, priority, group, headers, expires, unique_for)
        if after is not None:
            return push_many_after(
                self._context.current(connection), payloads, options, on_conflict, after, on_dead, now, connection
            )
        if on_dead != "wait":
            refuse_on_dead(on_dead)
        return push.push_many(self._context.current(connection), payloads, options, on_conflict, now, connection)

    @contextmanager
    def batch(
        self,
        *,
        then: Callback | None = None,
        failed: Callback | None = None,
        on_dead: OnDead = "wait",
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> Iterator[OpenBatch]:
        """Push a batch: `with queue.batch(then=("summary", payload)) as batch: batch.push_many(payloads)`.

        The messages are pushed when the block ends, all in one transaction, or none: if the block raises, nothing is
        pushed. The queue has `batches=True`: else `BadInput`.

        then      the name of a queue of this database, and a payload that is pushed there when the batch ends: when
                  none of its messages is left in the queue, except dead letters that `on_dead` ignores. It is pushed
                  exactly once, also after a kill. Its header `tablequeue-batch` has the `id` and the `queue` of the
                  batch, and the numbers of `BatchProgress`.
        failed    the same, pushed once when the batch has a dead letter.
        on_dead   what happens on a dead letter. `wait`: the batch waits until it is redriven and finished, or deleted;
                  `continue`: the batch ends without it; `cancel`: as `continue`, and the other messages are cancelled.
        connection, now   see `Consumer`. The messages are pushed in the caller's transaction, if it is given.

        A batch without messages ends at once. A dead letter that is redriven after the end does not open the batch
        again. The callback is pushed right after the completion of the last message; if that was in a caller's
        transaction, or its process died, by the next sweep, within seconds while a consumer of the queue waits or pops.
        """
        batch = NewBatch(self._context, then, failed, on_dead, now)
        yield batch
        batch.finish(connection)

    @contextmanager
    def batch_of(
        self, message: Claim, *, connection: Connection | None = None, now: datetime | None = None
    ) -> Iterator[OpenBatch]:
        """Push more messages into the batch of `message`, which is in progress.

        `with queue.batch_of(message) as batch: batch.push(payload)`: as `batch`, in one transaction, or none of them.
        The batch cannot end before these are finished. `LeaseLost` if the claim is not held any more when the block
        ends, `BadInput` if the message is in no batch, or in one that has ended: then nothing is pushed.
        """
        batch = MoreOfBatch(self._context, message, now)
        yield batch
        batch.finish(connection)

    def batches(self, n: int = 100, *, after: int = 0) -> list[Batch]:
        """Return the first `n` open batches with ids above `after`, by id. `BadInput` for a queue without batches."""
        return batches.of_queue(self._context.current(), n, after)

    # -- consuming -----------------------------------------------------------------------------------------------------

    def pop(
        self,
        *,
        lease: Duration | None = None,
        completing: Claim | None = None,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> Claim | None:
        """Claim the next message under a lease, as `Consumer.pop`; with `connection`, in the caller's transaction."""
        done = () if completing is None else (completing,)
        messages = self._pop(1, lease, False, done, connection, now)
        return messages[0] if messages else None

    def pop_many(
        self,
        n: int,
        *,
        lease: Duration | None = None,
        same_group: SameGroup = False,
        completing: Iterable[Claim] = (),
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> list[Claim]:
        """Claim up to `n` messages, as `Consumer.pop_many`; with `connection`, in the caller's transaction.

        `same_group` and `connection` together are refused.
        """
        return self._pop(n, lease, same_group, completing, connection, now)

    def pop_group(
        self, group: str, n: int = 1, *, lease: Duration | None = None, now: datetime | None = None
    ) -> list[Claim]:
        """Claim up to `n` messages of one group, in order of ids; an empty list if it has none ready.

        Only in a queue with `groups="fair"` that delivers at least once and has no limits: else `BadInput`. The order
        in which `pop` and `pop_many` serve the groups does not change.

        group   as it was given to `push`.
        lease   seconds, or a timedelta; the queue's lease if not given.
        now     see `Consumer`.
        """
        while True:
            token, rows = claim.claim_group(self._context.current(), push.check_text(group, "group"), n, lease, now)
            claims = self._claims(token, rows, now, None)
            if claims or not rows:
                return claims

    def take(self, connection: Connection, *, now: datetime | None = None) -> Claim | None:
        """Remove the next message in the transaction of `connection`, or None if none is ready.

        The message is finished when that transaction commits, exactly once with everything else in it. After a rollback
        it is back where it was. Until then no other consumer gets it.
        """
        messages = self.take_many(1, connection, now=now)
        return messages[0] if messages else None

    def take_many(self, n: int, connection: Connection, *, now: datetime | None = None) -> list[Claim]:
        """Remove up to `n` messages in the transaction of `connection`, in the queue's order, as `take` does."""
        context = self._context.current(connection)
        params = claim.check_take(context, n, now, connection)
        with context.runner.whole(connection):
            while rows := claim.take(context, params, now, connection):
                if claims := self._claims("", rows, now, connection):
                    return claims
            return []

    def result(self, id: int, *, wait: Duration = 0) -> Any:
        """Return the result of a message, in a queue with `results`; None if it was completed without one.

        Waits up to `wait` (seconds, or a timedelta) for the message to finish. `NoResult` if it is not finished by
        then, or if it never will be: it is a dead letter, has expired, or does not exist. `NoResult.state` says which.
        """
        return kept.result(self._context, id, wait)

    # -- looking -------------------------------------------------------------------------------------------------------

    def lost(
        self, limit: int = 100, *, after: int = 0, older_than: Duration | None = None, now: datetime | None = None
    ) -> list[Message]:
        """Return the first messages delivered at most once that no consumer has completed, with ids above `after`.

        Sorted by id, with their errors. They were popped `older_than` ago or earlier (the queue's lease if not given).
        Messages popped later may still be completed.
        """
        return inspect.lost(self._context.current(), limit, after, older_than, now)

    # -- keeping -------------------------------------------------------------------------------------------------------

    def move(
        self, which: Which, *, to: Queue, state: LiveState | None = None, now: datetime | None = None
    ) -> dict[int, int]:
        """Move messages that no consumer holds to another queue; return their old ids with the new ones.

        which   the messages: by ids, all in one transaction or none; by a function that returns true for a `Message` to
                move; or `tablequeue.ALL`.
        to      a queue with the same payload type, and groups if this one has them. If it is of another database, all
                messages are moved, as by `move_batches`: `which` is then `ALL`, and `state` is left out.
        state   move only messages in this state: `ready`, `scheduled`, `blocked` or `dead`; in any of them if not
                given.

        A message keeps its payload, headers, key, group, priority, due time, attempts, errors, producer and
        `pushed_at`. Where the order is by id, it comes after the messages that the other queue has. Without ids, each
        thousand messages are moved in one transaction, and messages that a consumer gets meanwhile stay. A crash leaves
        each message in one of the queues.

        `BadInput` names ids that are in progress, or do not exist. `DuplicateKey` if the other queue has messages with
        the same keys: nothing of the transaction was moved.
        """
        return move.move(self._context.current(), to._context.current(), which, state, now)

    def move_batches(
        self, *, to: Queue, history: bool = False, follow: bool = False, now: datetime | None = None
    ) -> Generator[Moved]:
        """Move all messages that no consumer holds to a queue of another database; yield what each batch has moved.

        to       the other queue, with the same payload type, and groups if this one has them.
        history  copy the history too. A message that was copied before is not copied again.
        follow   go on with messages that are pushed, released or retried here, until the iteration is closed. While
                 there is nothing to move, an empty batch is yielded, twice a second.

        Each message ends in the other queue exactly once, whatever dies: after a crash, move again. It keeps what
        `move` keeps, and when it expires. A batch is a thousand messages: this database reserves them in a table, the
        other one stores them, and then this one deletes them. Messages that a crash leaves reserved block no consumer,
        and the next move takes them along. A batch is yielded when the other database has it.

        If this queue is `strict`, or has groups in order, it is paused from the beginning, and stays paused: messages
        behind a message in progress stay here until that one is finished.

        `DuplicateKey`, at the end, if messages stay because the other queue has their keys.
        """
        return move.move_batches(self._context, to._context, history, follow, now)

    def purge(self, *, in_progress: bool = False) -> int:
        """Delete every message that waits (ready, scheduled or blocked), a thousand at a time; return how many.

        in_progress   also messages in progress: their consumers get `LeaseLost`.

        Dead letters and the history stay. After a crash, messages deleted before it stay deleted.
        """
        return maintain.purge(
            self._context.current(), (*WAITING_STATES, "in_progress") if in_progress else WAITING_STATES
        )


__all__ = ["MessageOptions", "OnConflict", "PushOptions", "Queue"]
