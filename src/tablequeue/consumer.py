"""What queues and subscriptions have in common: the verbs that consume, look at, change, control and keep messages.

Over 400 lines, because they are the signatures and docstrings of one class. What the verbs do is in `verbs/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from time import monotonic
from typing import Any, Unpack

from tablequeue.errors import BadPayload, Empty, LeaseLost
from tablequeue.model.connection import Connection
from tablequeue.model.definition import Definition
from tablequeue.model.message import PAYLOAD, Claim, Message, checked_claims, checked_id
from tablequeue.model.options import AlterOptions
from tablequeue.model.pacing import Duration, in_seconds
from tablequeue.model.progress import Progress
from tablequeue.model.states import WAITING_STATES, FailedState, LiveState
from tablequeue.observe import telemetry
from tablequeue.verbs import (
    alter,
    cancel,
    catalogue,
    claim,
    control,
    finish,
    inspect,
    maintain,
    progress,
    reschedule,
    stats,
    unreadable,
)
from tablequeue.verbs.cancel import Cancellation, Chosen
from tablequeue.verbs.claim import SameGroup
from tablequeue.verbs.complete_and_claim import complete_and_claim
from tablequeue.verbs.context import Context, seconds
from tablequeue.verbs.maintain import Which
from tablequeue.verbs.stats import Stats
from tablequeue.verbs.wait import INFINITE, Waiter


class Consumer:
    """The common verbs of a `Queue` and a `Subscription`: messages are claimed, finished, looked at and kept.

    Made by `Database.consumer`, by the name of either. What many verbs have in common:

    connection=   the transaction to act in: a SQLAlchemy Connection, Session or scoped_session (as Flask-SQLAlchemy's
                  `db.session`), or a DB-API connection. The verb never commits it. None: a transaction of the verb's
                  own, which is committed when the verb returns. A refused call has changed nothing, also if you catch
                  the error and commit. On PostgreSQL an error of the database itself aborts your transaction.
    now=          an aware datetime to use instead of the database's clock: leases, delays and ages count from it, and
                  it is stored as the time of the event. Use it in tests, and for messages that keep the times of
                  another system. None: the database's clock, which is the same for all processes.
    durations     (`delay=`, `lease=`, `wait=`, `retry_in=`, `older_than=`, `window=`): seconds or a timedelta, from 0
                  to 100 years.

    Every refusal is a `TablequeueError`. An argument that cannot be used is refused with `BadInput`, and nothing is
    changed.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def name(self) -> str:
        return self._context.table.name

    @property
    def definition(self) -> Definition:
        return self._context.table.definition

    @property
    def table(self) -> str:
        """The name of its table, which it keeps when it is renamed, and which no other queue ever gets."""
        return self._context.table.table_name

    # -- consuming -----------------------------------------------------------------------------------------------------

    def pop(
        self,
        *,
        lease: Duration | None = None,
        completing: Claim | None = None,
        now: datetime | None = None,
    ) -> Claim | None:
        """Claim the next message under a lease; None if no message is ready.

        No other consumer gets the message while the lease holds. If this process dies, the message becomes ready again
        when the lease ends. In a queue that delivers at most once it is never redelivered, and `lost` finds it.

        lease        seconds, or a timedelta; the queue's lease if not given.
        completing   the previous message: complete it in the same transaction, which takes half the time of two calls.
                     If its claim is not held, `LeaseLost`, and nothing is claimed.
        now          see `Consumer`.
        """
        done = () if completing is None else (completing,)
        messages = self.pop_many(1, lease=lease, completing=done, now=now)
        return messages[0] if messages else None

    def pop_many(
        self,
        n: int,
        *,
        lease: Duration | None = None,
        same_group: SameGroup = False,
        completing: Iterable[Claim] = (),
        now: datetime | None = None,
    ) -> list[Claim]:
        """Claim up to `n` messages in one round trip, in the queue's order; an empty list if none is ready.

        lease        seconds, or a timedelta; the queue's lease if not given.
        same_group   in a queue with ordered groups: claim all from one group, in its order. No claim gets more of the
                     group until each of them is completed, failed or released, or its lease has ended. A message to be
                     retried comes before later ones. "open": the group waits only for messages in progress, as in SQS,
                     so a message to be retried may be in progress beside later ones.
        completing   the previous batch: complete it as `complete_many` does. After `LeaseLost` the other messages of
                     that batch are completed, and nothing is claimed.
        """
        return self._pop(n, lease, same_group, completing, None, now)

    def complete(
        self, message: Claim, *, result: Any = None, connection: Connection | None = None, now: datetime | None = None
    ) -> None:
        """Complete the message; see `Claim.complete`."""
        finish.complete(
            self._context.current(connection), (message,), now, connection, None if result is None else (result,)
        )

    def complete_many(
        self,
        messages: Iterable[Claim],
        *,
        results: Sequence[Any] | None = None,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> None:
        """Complete all messages of a batch in one round trip.

        results   in a queue with `results`: a JSON value for each message, aligned with them. None: no result.

        A message is left alone if its claim is no longer held, and `LeaseLost.ids` names it; the others are completed.
        """
        finish.complete(self._context.current(connection), messages, now, connection, results)

    def fail(
        self,
        message: Claim,
        error: str | BaseException = "",
        *,
        retry_in: Duration | None = None,
        retry: bool = True,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> FailedState:
        """Fail the attempt: keep the error, and retry the message later; return its new state. See `Claim.fail`."""
        (state,) = finish.fail(self._context.current(connection), (message,), error, retry_in, retry, now, connection)
        return state

    def fail_many(
        self,
        messages: Iterable[Claim],
        error: str | BaseException = "",
        *,
        retry_in: Duration | None = None,
        retry: bool = True,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> list[FailedState]:
        """Fail the attempts of a batch in one round trip, as `fail` does; return the new states in the same order.

        Without `retry_in` each message waits by its own attempts; messages that a subscription claimed together wait
        together. A message is left alone if its claim is no longer held, and `LeaseLost.ids` names it; the others have
        failed.
        """
        return finish.fail(self._context.current(connection), messages, error, retry_in, retry, now, connection)

    def release(
        self, message: Claim, *, delay: Duration = 0, connection: Connection | None = None, now: datetime | None = None
    ) -> None:
        """Give the message back unprocessed: it is ready after `delay`. See `Claim.release`."""
        finish.release(self._context.current(connection), (message,), delay, now, connection)

    def release_many(
        self,
        messages: Iterable[Claim],
        *,
        delay: Duration = 0,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> None:
        """Give a batch back, as `release` does; `LeaseLost.ids` names the messages that are no longer held."""
        finish.release(self._context.current(connection), messages, delay, now, connection)

    def extend(
        self,
        message: Claim,
        lease: Duration | None = None,
        *,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> datetime:
        """Have the lease end `lease` seconds (or a timedelta) from now, and return its new end; see `Claim.extend`."""
        (end,) = finish.extend(self._context.current(connection), (message,), lease, now, connection)
        return end

    def extend_many(
        self,
        messages: Iterable[Claim],
        lease: Duration | None = None,
        *,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> list[datetime]:
        """Extend the leases of a batch in one round trip, as `extend` does; return their new ends in the same order.

        A message is left alone if its claim is no longer held, and `LeaseLost.ids` names it; the others are extended.
        """
        return finish.extend(self._context.current(connection), messages, lease, now, connection)

    def extend_held(self, id: int, lease: Duration, *, now: datetime | None = None) -> bool:
        """Let the lease on a message in progress, of any consumer, end `lease` seconds from now; 0 ends it now.

        For an operator, and for the SQS endpoint: the consumer keeps its claim while the lease runs, and nothing is
        finished. With 0 the message is ready when the call returns, as by `extend`. False, and no change, if the
        message is not in progress, or in the batch of a stream, which has no lease. In a subscription it works for
        detached messages only.
        """
        return finish.extend_held(self._context.current(), id, lease, now)

    def report_progress(
        self,
        message: Claim,
        fraction: float,
        detail: Any = None,
        *,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> None:
        """Report how much of the work on a claimed message is done; see `Claim.progress`."""
        progress.report(self._context.current(connection), message, fraction, detail, now, connection)

    def is_cancelled(self, message: Claim) -> bool:
        """Return whether the message was cancelled while it was in progress; see `Claim.cancelled`."""
        return bool(cancel.cancelled_in_progress(self._context.current(), [message.id]))

    @contextmanager
    def receive(self, *, wait: Duration = 0, lease: Duration | None = None) -> Iterator[Claim]:
        """Pop one message for a `with` block; complete it when the block ends, fail it when the block raises.

        Waits up to `wait` (seconds, or a timedelta) for a message, then raises `Empty`. An exception fails the message
        with its traceback and goes on to the caller; KeyboardInterrupt and SystemExit release the message instead
        (where delivery is at most once they fail it too).
        """
        message = next(self.consume(wait=wait, lease=lease), None)
        if message is None:
            raise Empty(
                f"No message became ready in {self.name!r} within {in_seconds(wait)} s.", "Wait longer, or push one."
            )
        try:
            with telemetry.processing(self.name, (message,)):
                yield message
        except Exception as error:
            message.fail(error)
            raise
        except BaseException as interrupt:
            finish.abandon(self._context, (message,), interrupt)
            raise
        message.complete()

    def consume(
        self, *, wait: Duration | None = None, lease: Duration | None = None, prefetch: int = 1
    ) -> Iterator[Claim]:
        """Iterate over messages as they become ready. Finish each of them by `complete`, `fail` or `release`.

        Ends after `wait` (seconds, or a timedelta) without a message; None: never. Claims `prefetch` messages at a
        time. When the iteration is closed, messages not yet handed over are released.
        """
        limit = INFINITE if wait is None else seconds(wait, "wait")
        claim.check_prefetch(self._context, prefetch)
        idle_since = monotonic()
        with Waiter(self._context) as waiter:
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

    # -- looking -------------------------------------------------------------------------------------------------------

    def peek(self, limit: int = 10, *, state: LiveState = "ready", after: int = 0) -> list[Message]:
        """Return the first messages in a state (ready, scheduled, in_progress, dead, blocked) with ids above `after`.

        Sorted by id, whatever the order of the queue. Nothing is claimed.
        """
        return inspect.peek(self._context.current(), limit, state, after)

    def find(self, id: int) -> Message | None:
        """Return the message with that id, from the queue or from its history; None if neither has it.

        In the history its `state` is `finished`; or `in_progress`, without a `finished_at`, for a message delivered at
        most once and not completed. A finished message is not found if the queue keeps no history, or if its retention
        is over. Two reads that lock nothing. A message that is finished between them is found.
        """
        return inspect.find(self._context.current(), id)

    def progress(self, id: int) -> Progress | None:
        """Return what the consumer of a message in progress reported last; None if it is not in progress, or has no
        report.

        A read that locks nothing.
        """
        return progress.of(self._context.current(), (checked_id(id),)).get(id)

    def stats(self, *, window: Duration | None = None, now: datetime | None = None) -> Stats:
        """Count the messages in each state, and measure the age of the oldest ready one.

        With `window` (1 second at least), also the messages pushed and finished in that time: by which producers and
        consumers, at which rates, with which wait and run times. The last 50,000 messages count, if there were more.
        From 100,000 finished messages on their number is an estimate. `Stats.estimated` names the numbers that are not
        exact. Each number is a read of its own from an index, and locks nothing.
        """
        return stats.stats(self._context.current(), window, now)

    def history(self, limit: int = 100, *, after: int | None = None) -> list[Message]:
        """Return the messages that left the queue, highest id first: the first `limit` of them, or those after `after`.

        after   the id of the last message of the page before: the next one has the ids below it.

        `BadInput` if the queue keeps no history.
        """
        return inspect.history(self._context.current(), limit, after)

    def history_bounds(self) -> tuple[int, int] | None:
        """Return the lowest and the highest id in the history; None if it is empty."""
        return inspect.history_bounds(self._context.current())

    # -- changing ------------------------------------------------------------------------------------------------------

    def cancel(
        self, which: Chosen, *, connection: Connection | None = None, now: datetime | None = None
    ) -> Cancellation:
        """Cancel messages: remove waiting messages, and tell consumers of messages in progress to stop. Return the ids.

        which   the id of a message, several ids, or a function that returns true for a `Message` to cancel.
        connection, now   see `Consumer`.

        A message that waits, or is a dead letter, moves to the history as `cancelled`; it is deleted if the queue keeps
        none. Its key is free, and its group goes on. The consumer of a message in progress sees `Claim.cancelled`. Such
        a message is not retried: if it fails, is released, or loses its lease, it ends as `cancelled`. If its consumer
        completes it, it is completed.

        Ids are cancelled in one transaction, all or none. A function is called with each message, and the chosen
        messages are cancelled a thousand at a time. Where delivery is at most once, messages in progress cannot be
        cancelled. In a subscription only detached messages can be cancelled: `BadInput` for the ids of other messages.
        """
        return cancel.cancel(self._context.current(connection), which, now, connection)

    def reschedule(
        self,
        id: int,
        *,
        delay: Duration | None = None,
        due: datetime | None = None,
        priority: int | None = None,
        connection: Connection | None = None,
        now: datetime | None = None,
    ) -> None:
        """Change when a message that waits becomes ready, or its priority, or both.

        delay, due   when it becomes ready: after `delay` (seconds, or a timedelta), or at `due` (an aware datetime).
        priority     in a queue of the order `priority`: its new priority.
        connection, now   see `Consumer`.

        A value that is not given stays as it is. Waiting consumers look again. A message behind another one of its
        group stays behind it. `BadInput`, and no change, if the message is in progress, a dead letter or finished, or
        does not exist.
        """
        reschedule.reschedule(self._context.current(connection), id, delay, due, priority, now, connection)

    # -- controlling ---------------------------------------------------------------------------------------------------

    def alter(self, **options: Unpack[AlterOptions]) -> None:
        """Change options of `create_queue` that need no change of the queue's tables.

        They are `lease`, `max_attempts`, `backoff`, `history`, `dead_letter_to`, `concurrency`, `rate`, `expires`,
        `unique_for`, `results`, `batches` and `dependencies`; None, or False, switches an optional feature off, except
        for the last two. Given `labels` are set, and a label with None is removed. Other options stay as they are. A
        change takes effect at once in this process, and within a second in every other process that uses the queue,
        also for messages that were pushed before. A lease that runs keeps its end. Messages in progress count for a
        limit. Existing stored procedures are made again.

        `BadDefinition`, and no change, for options that are a part of the tables, such as the order, the payload, or
        a history for a queue without one. A crash leaves the old definition, or the new one. A change of `concurrency`
        or `rate` waits for claims in transactions of callers. `batches`, `expires` and `results` lock a table for a
        moment: `Locked`, and no change, if a transaction of another program has it for longer than a second.
        """
        self._context.become(alter.alter(self._context.runner, self._context.table, options))

    def pause(self, until: datetime | Duration | None = None, *, connection: Connection | None = None) -> None:
        """Hand out no message until `until`: an aware time, or a time from now; None: until `resume`. Pushes go on.

        It holds for every consumer, from the next claim after it has committed: for pops, takes, streams and stored
        procedures. Messages in progress can be finished. `stats` shows the pause. Idempotent; the last time wins.
        """
        control.pause(self._context.current(connection), until, connection)

    def resume(self, *, connection: Connection | None = None) -> None:
        """End the pause, if there is one. Consumers that wait notice within half a second."""
        control.resume(self._context.current(connection), connection)

    # -- keeping -------------------------------------------------------------------------------------------------------

    def dead(self, limit: int = 100, *, after: int = 0) -> list[Message]:
        """Return the first dead letters with ids above `after`, by id, each with every error."""
        return inspect.peek(self._context.current(), limit, "dead", after)

    def redrive(self, which: Which, *, now: datetime | None = None) -> int:
        """Make dead letters ready again, with all their attempts again, and return how many. Their errors stay.

        Dead letters in another queue (`dead_letter_to`) move back, with new ids. Called on that other queue, it moves
        the waiting ones back to the queues that they came from. A dead letter stays if another message has its key by
        now.

        which   the messages: by ids, by a function that returns true for a `Message` to redrive, or `tablequeue.ALL`. A
                message that moved to another queue is named by the id that it had here.
        """
        return maintain.redrive(self._context.current(), which, now)

    def purge_dead(self, which: Which) -> int:
        """Delete dead letters, chosen as in `redrive`, and return how many."""
        return maintain.purge_dead(self._context.current(), which)

    def purge_history(self, older_than: Duration, *, now: datetime | None = None) -> int:
        """Delete messages finished or lost `older_than` ago or earlier, a thousand at a time; return how many."""
        return maintain.purge_history(self._context.current(), older_than, now)

    def purge(self) -> int:
        """Delete every message that waits (ready, scheduled or blocked), a thousand at a time; return how many.

        Messages in progress, dead letters and the history stay. After a crash, messages deleted before it stay deleted.
        """
        return maintain.purge(self._context.current(), WAITING_STATES)

    def drop(self) -> None:
        """Drop the queue, its messages and its history, also while it is in use."""
        catalogue.drop(self._context.current())

    # -- private -------------------------------------------------------------------------------------------------------

    def _pop(
        self,
        n: int,
        lease: Duration | None,
        same_group: SameGroup,
        completing: Iterable[Claim],
        connection: Connection | None,
        now: datetime | None,
    ) -> list[Claim]:
        done = checked_claims(completing, Claim)
        context = self._context.current(connection)
        if connection is not None:
            claim.check_claim(context, n, lease, now, connection, same_group)
        with context.runner.whole(connection, unless=LeaseLost):
            while True:
                if done:
                    token, rows = complete_and_claim(context, done, n, lease, now, connection, same_group)
                else:
                    token, rows = claim.claim(context, n, lease, now, connection, same_group)
                claims = self._claims(token, rows, now, connection)
                if claims or not rows:
                    return claims
                done = ()  # none of the claimed payloads can be read, and more messages may be ready

    def _claims(
        self, token: str, rows: Sequence[Sequence[Any]], now: datetime | None, connection: Connection | None
    ) -> list[Claim]:
        """Return claims on the rows with readable payloads; each other row becomes a dead letter."""
        load = self._context.codec.load
        try:
            return [Claim(self, row, load(row[PAYLOAD]), token) for row in rows]
        except BadPayload:
            return [
                Claim(self, row, payload, token)
                for row, payload in unreadable.readable(self._context, token, rows, now, connection)
            ]

    def _hand_over(self, batch: list[Claim]) -> Iterator[Claim]:
        handed = 0
        try:
            for message in batch:
                handed += 1
                yield message
        finally:
            if handed < len(batch):
                self.release_many(batch[handed:])


__all__ = ["Consumer"]
