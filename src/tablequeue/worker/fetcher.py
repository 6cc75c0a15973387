"""Fetches the messages of one queue of a worker, and holds them until they are finished."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from threading import Condition
from time import monotonic, time
from typing import NamedTuple

from tablequeue.consumer import Consumer
from tablequeue.errors import TRANSIENT
from tablequeue.ext import waiter_of
from tablequeue.model.message import Claim
from tablequeue.model.pacing import backoff
from tablequeue.worker.balance import GROW_AFTER, Snapshot
from tablequeue.worker.drain import Drain
from tablequeue.worker.ending import Ending, endings, unbegun_endings
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import Outcome
from tablequeue.worker.pool import Assignment, Pool, SharedLease

logger = logging.getLogger("tablequeue.worker")

# Work that is prefetched for each consumer, in seconds of its handler: enough that it does not wait for a pop, and so
# little that no messages wait here while another process is idle. A handler slower than that has nothing prefetched.
PREFETCH_SECONDS = 0.1
MOST_PREFETCHED = 1000
# The fraction of its lease for which a message may wait to be finished after its handler. After that no more messages
# are popped.
UNFINISHED_FRACTION = 1 / 8


class Load(NamedTuple):
    """The messages that a worker holds of a queue at a moment.

    messages   the number of messages `waiting` for a consumer, `running`, and `ended` but not finished.
    last_pop   when a pop last found messages, in seconds since 1970; None before the first one.
    oldest     the seconds since the pop of the first message that it holds; None if it holds none.
    """

    queue: str
    consumers: int
    messages: Mapping[str, int]
    last_pop: float | None
    oldest: float | None


class Fetcher:
    """Pops messages as fast as consumers take them, and holds each until it is finished.

    on_popped    called when more consumers may be needed.
    on_ended     called for each assignment that has ended, with how its claims are to end.
    fail         called when consumers cannot be started.
    drain        is told of pops that find nothing; None: the queue is not drained.
    """

    def __init__(
        self,
        queue: Consumer,
        handler: Handler,
        minimum: int,
        maximum: int,
        longest_pause: float | None,
        on_popped: Callable[[], None],
        on_ended: Callable[[Fetcher, Assignment, Sequence[Ending]], None],
        fail: Callable[[Exception], None],
        drain: Drain | None = None,
    ) -> None:
        self.queue = queue
        self.handler = handler
        definition = queue.definition
        self._leased = definition.delivery == "at_least_once"
        self._in_ranges = definition.claims_ranges
        # A message delivered at most once is not popped before a process is ready: it would be lost if none starts.
        self._needs_process = handler.processes and not self._leased
        self.minimum = max(minimum, 1) if self._needs_process else minimum
        self.maximum = maximum
        self.consumers = 0
        """How many consumers the pool is to have."""
        self.pool: Pool
        self.fail = fail
        self._last_pop: float | None = None
        self._on_popped = on_popped
        self._on_ended = on_ended
        self._drain = drain
        self._waiter = waiter_of(queue, longest_pause)
        self._state = Condition()
        self._stopping = False
        self._closed = False
        """Whether consumers begin nothing more."""
        self._assignments: set[Assignment] = set()
        self._running: dict[Assignment, None] = {}
        """Assignments that a handler works on. Consumers enter and remove them without a lock, each in one step."""
        self._few = -1
        """While the fetcher waits, the number of waiting assignments at which it pops again; else -1."""
        self._behind = False
        """Whether the fetcher waits until messages are finished that have ended."""
        self._busy = 0
        """The number of consumers that cannot take an assignment now: they have one, or are still starting."""
        self._starting = 0
        self._seconds_per_message: float | None = None
        """A moving average of the handler's time for one message."""
        self._found_all = False
        """Whether the last pop found as many messages as it asked for."""
        self._behind_since = self._idle_since = monotonic()

    # -- pops, in the fetcher's thread --------------------------------------------------------------------------------

    def run(self) -> None:
        """Pop until `stop`; or, to drain the queues, until they are empty and all popped messages are finished.

        After a transient error it tries again. Raises any other error of the database.
        """
        failures = 0
        with self._waiter as waiter:
            while n := self._await_demand():
                try:
                    if not self._pop(n):
                        waiter.wait()
                    else:
                        waiter.found()
                    failures = 0
                except TRANSIENT as error:
                    if self._stopping:
                        return
                    failures += 1
                    pause = backoff(failures)
                    logger.warning("%s: %s Trying again in %.1f s.", self.queue.name, error, pause)
                    with self._state:
                        self._state.wait_for(lambda: self._stopping, pause)

    def wake(self) -> None:
        """End the wait for messages, and pop."""
        self._waiter.wake()

    def stop(self) -> None:
        """Pop no more messages and begin no more calls. Running calls go on; other messages are released.

        Messages delivered at most once cannot be released: if they were popped, they are still handled.
        """
        with self._state:
            self._stopping = True
            self._closed = self._leased
            self._state.notify_all()
        self.wake()
        if self._closed:
            self._take_back()
        elif self.pool.waiting and not self.consumers:
            self.set_consumers(1)

    def await_consumers(self, deadline: float) -> bool:
        """After `stop`: wait until all handlers have ended. Returns whether they have."""
        with self._state:
            self._state.wait_for(
                lambda: all(assignment.ended for assignment in self._assignments), max(0, deadline - monotonic())
            )
            self._closed = True
        self._take_back()
        return not self._running

    def abandon(self) -> list[Assignment]:
        """End the calls that run, and return their assignments. Their outcomes are ignored from now on."""
        running: list[Assignment] = []
        while self._running:
            assignment, _ = self._running.popitem()
            assignment.ended_at = monotonic()
            running.append(assignment)
        self.pool.abandon()
        return running

    # -- the number of consumers ---------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the values that decide the number of consumers."""
        now = monotonic()
        with self._state:
            return Snapshot(
                consumers=self.consumers,
                busy=self._busy,
                waiting=self._waiting(),
                behind=now - self._behind_since,
                idle=0 if self._busy >= self.consumers else now - self._idle_since,
                minimum=0 if self._stopping else self.minimum,
                maximum=self.maximum,
            )

    def set_consumers(self, number: int) -> None:
        with self._state:
            if number == self.consumers:
                return
            self.consumers = number
            self._behind_since = self._idle_since = monotonic()
            self.pool.resize(number)
            self._state.notify_all()

    def is_idle(self) -> bool:
        """Whether it holds no messages, and no consumer may retire."""
        with self._state:
            return not self._assignments and self.consumers == self.minimum

    # -- the assignments that it holds ---------------------------------------------------------------------------------

    def assignments(self) -> list[Assignment]:
        """Return all assignments: waiting for a consumer, running, and waiting to be finished."""
        with self._state:
            return list(self._assignments)

    def load(self) -> Load:
        held = self.assignments()
        messages = Counter({"waiting": 0, "running": 0, "ended": 0})
        for one in held:
            messages["ended" if one.ended else "running" if one.running else "waiting"] += len(one.claims)
        first = min((one.popped_at for one in held), default=None)
        oldest = None if first is None else monotonic() - first
        return Load(self.queue.name, self.consumers, messages, self._last_pop, oldest)

    def has_assignments(self) -> bool:
        return bool(self._assignments)

    def running(self) -> list[Assignment]:
        """Return the assignments that a handler works on."""
        return list(self._running)

    def discard(self, assignments: Sequence[Assignment]) -> None:
        """Forget assignments: their messages are finished."""
        if self._drain is not None:
            self._drain.before_discard()
        with self._state:
            self._assignments.difference_update(assignments)
            if self._behind:
                self._state.notify_all()
        if self._drain is not None:
            self._drain.after_discard()
        if self.queue.definition.grouped or self._counts_for_limit():
            self.wake()  # the next message of the group may be ready, or is within the limit

    # -- called by the consumers ---------------------------------------------------------------------------------------

    def begin(self, assignment: Assignment) -> bool:
        now = monotonic()
        lease = self.queue.definition.lease
        if self._closed or (self._leased and (assignment.lost or now > assignment.leased_at + lease)):
            # After an expired lease another consumer may have the messages.
            self.give_back(assignment)
            return False
        assignment.began_at = now
        self._running[assignment] = None
        if self.pool.waiting <= self._few:
            with self._state:
                self._few = -1
                self._state.notify_all()
        return True

    def end(self, assignment: Assignment, outcomes: Sequence[Outcome]) -> None:
        assert assignment.began_at is not None, "a consumer ends what it has begun"
        if self._running.pop(assignment, assignment) is assignment:
            return  # it was abandoned
        took = (monotonic() - assignment.began_at) / len(assignment.claims)
        average = self._seconds_per_message
        self._seconds_per_message = took if average is None else 0.8 * average + 0.2 * took
        self._on_ended(self, assignment, endings(self.queue.definition, assignment, outcomes))
        self._note_end(assignment)

    def give_back(self, assignment: Assignment) -> None:
        reason = "the worker stopped before a consumer began"
        self._on_ended(self, assignment, unbegun_endings(self.queue.definition, assignment, reason))
        self._note_end(assignment)

    def consumer_busy(self) -> None:
        with self._state:
            self._busy += 1
            if self._busy >= self.consumers:
                self._idle_since = monotonic()
            self._state.notify_all()

    def consumer_idle(self) -> None:
        with self._state:
            if self._busy >= self.consumers:
                self._idle_since = monotonic()
            self._busy -= 1
            self._state.notify_all()

    def consumer_starting(self) -> None:
        with self._state:
            self._starting += 1

    def consumer_ready(self) -> None:
        with self._state:
            self._starting -= 1
            self._state.notify_all()

    # -- private -----------------------------------------------------------------------------------------------------

    def _await_demand(self) -> int:
        """Wait until messages are needed, and return how many; 0 when stopping or drained."""
        with self._state:
            while not self._is_over():
                target = self._target()
                self._few = self._starting + target // 2 // (self.handler.batch or 1) if target else -1
                # After that: a consumer takes an assignment before it looks at the number.
                demand = self._demand(target)
                self._behind = demand > 0 and self._finishes_late()
                if demand and not self._behind:
                    self._few = -1
                    return demand
                self._state.wait()
            return 0

    def _is_over(self) -> bool:
        return self._stopping or (self._drain is not None and self._drain.done)

    def _demand(self, target: int) -> int:
        """Return how many messages to pop now: 0 until half of the prefetched ones are used up, to pop many at once."""
        waiting = self._waiting() * (self.handler.batch or 1)
        return target - waiting if waiting <= target // 2 else 0

    def _finishes_late(self) -> bool:
        """Return whether messages end faster than they are finished, so that leases could expire in the meantime."""
        if not self._leased:
            return False
        since = monotonic() - self.queue.definition.lease * UNFINISHED_FRACTION
        return any(one.ended_at is not None and one.ended_at < since for one in self._assignments)

    def _counts_for_limit(self) -> bool:
        """Return whether a message waiting here would count for a limit that another process could use."""
        return self.queue.definition.limits_in_progress

    def _target(self) -> int:
        """Return how many messages are to wait for consumers."""
        size = self.handler.batch or 1
        free = max(0, max(self.consumers, 0 if self._needs_process else 1) - self._busy)
        # When all consumers are busy, one more assignment: it shows whether there is a backlog.
        extra = size if not free and self.consumers < self.maximum else 0
        if self._leased and not self._counts_for_limit():
            # Prefetch only after a pop that found all it asked for: a pop that finds fewer sweeps, and the first
            # message of a quiet queue need not wait for a sweep.
            seconds = self._seconds_per_message
            ahead = min(int(PREFETCH_SECONDS / seconds), MOST_PREFETCHED) if seconds and self._found_all else 0
            extra = max(extra, ahead * self.consumers)
        elif self._starting or monotonic() - self._behind_since < GROW_AFTER:
            # It would be lost if this process died while it waits, or it would count for a limit that another process
            # could use: so it is popped only when a consumer can be added.
            extra = 0
        return free * size + extra

    def _pop(self, n: int) -> bool:
        """Pop up to `n` messages. Returns whether there were any."""
        finished = 0 if self._drain is None else self._drain.before_pop(self)
        asked_at = monotonic()
        claims = self.queue.pop_many(n)
        if not claims and self._drain is not None and self._waiter.looks_everywhere():
            claims = self.queue.pop_many(n)
        if claims:
            self._distribute(claims, n, asked_at)
        else:
            with self._state:
                self._found_all = False
                self._behind_since = monotonic()
            if self._drain is not None and not self._waiter.was_held():
                self._drain.found_empty(self, finished)
        return bool(claims)

    def _distribute(self, claims: list[Claim], n: int, asked_at: float) -> None:
        size, now = self.handler.batch or 1, monotonic()
        self._last_pop = time()
        whole = SharedLease(len(claims)) if self._in_ranges else None
        assignments = [
            Assignment(claims[start : start + size], asked_at, now, whole) for start in range(0, len(claims), size)
        ]
        with self._state:
            closed = self._closed  # while the pop was under way
            self._assignments.update(assignments)
            if not closed:
                self._found_all = len(claims) == n
                if not self._found_all:
                    self._behind_since = now
                self.pool.put(assignments)
        if closed:
            for assignment in assignments:
                self.give_back(assignment)
        elif self._stopping and not self.consumers:
            self.set_consumers(1)
        else:
            self._on_popped()

    def _take_back(self) -> None:
        for assignment in self.pool.stop():
            self.give_back(assignment)

    def _note_end(self, assignment: Assignment) -> None:
        assignment.ended_at = monotonic()
        if self._stopping:  # checked after that: `await_consumers` checks them in the other order
            with self._state:
                self._state.notify_all()

    def _waiting(self) -> int:
        """Return how many assignments wait for a consumer, besides one for each consumer that will soon be ready."""
        return max(0, self.pool.waiting - self._starting)
