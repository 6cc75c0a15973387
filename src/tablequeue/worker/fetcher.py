"""One queue of a worker: pops its messages as fast as the consumers take them, and keeps what they hold."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from threading import Condition
from time import monotonic

from tablequeue.errors import Conflict, ConnectionLost, Full, Locked, ReadOnly, Unreachable
from tablequeue.message import Claim
from tablequeue.queue import Queue
from tablequeue.worker.balance import GROW_AFTER, Sight
from tablequeue.worker.drain import Drain
from tablequeue.worker.ending import Ending, endings, given_back
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import Outcome
from tablequeue.worker.pool import Assignment, Pool

logger = logging.getLogger("tablequeue.worker")

# Work that lies ready for each consumer, in seconds of its handler: enough that it does not wait for a pop, little
# enough that nothing lies here while another process is idle. A handler slower than that has nothing lying ready.
AHEAD = 0.1
MOST_AHEAD = 100
# Refusals that pass: the database is away, full, or held by another program.
PASSING = (ConnectionLost, Unreachable, Locked, Conflict, Full, ReadOnly)
# Seconds before the next try after one of them, doubling from the first to the last.
BACKOFF = (0.1, 5.0)


class Fetcher:
    """The messages between a queue and its consumers.

    changed    called when something may have to be decided about the number of consumers.
    ended      called for each assignment with how its claims are to end.
    refused    called when there can be no consumers.
    drain      what is to be told of pops that find nothing; None: the queue is not drained.
    """

    def __init__(
        self,
        queue: Queue,
        handler: Handler,
        minimum: int,
        maximum: int,
        longest_pause: float | None,
        changed: Callable[[], None],
        ended: Callable[[Fetcher, Assignment, Iterable[Ending]], None],
        refused: Callable[[Exception], None],
        drain: Drain | None = None,
    ) -> None:
        self.queue = queue
        self.handler = handler
        self._leased = queue.definition.delivery == "at_least_once"
        # A message that is delivered once is not popped before there is a process for it: it might not come to be.
        self._unready = handler.processes and not self._leased
        self.minimum = max(minimum, 1) if self._unready else minimum
        self.maximum = maximum
        self.consumers = 0
        self.pool: Pool
        self._changed = changed
        self._ended = ended
        self.refuse = refused
        self._drain = drain
        self._waiter = queue.waiter(longest_pause)
        self._state = Condition()
        self._stopping = self._found_all = False
        self._closed = False
        """Whether consumers begin with nothing more."""
        self._assignments: set[Assignment] = set()
        self._unbegun = 0
        self._busy = 0
        """Consumers that cannot take a message now: they have one, or are not ready yet."""
        self._starting = 0
        self._pace: float | None = None
        """Seconds of the handler for one message, lately."""
        self._behind_since = self._idle_since = monotonic()

    # -- the pops, in a thread of the fetcher -------------------------------------------------------------------------

    def run(self) -> None:
        """Pop until `stop`; or, to drain the queues, until nothing is ready and all that was popped is finished.

        Raises what the database refuses for good. A broken connection, a lock or a full disk is tried again.
        """
        failures = 0
        with self._waiter as waiter:
            while n := self._room():
                try:
                    if not self._pop(n):
                        waiter.wait()
                    else:
                        waiter.found()
                    failures = 0
                except PASSING as error:
                    if self._stopping:
                        return
                    failures += 1
                    pause = pause_after(failures)
                    logger.warning("%s: %s Trying again in %.1f s.", self.queue.name, error, pause)
                    with self._state:
                        self._state.wait_for(lambda: self._stopping, pause)

    def stop(self) -> None:
        """Pop no more; consumers go on with what they have begun, and begin nothing. The rest is given back.

        Where delivery is at most once it cannot be: there they begin with what was popped.
        """
        with self._state:
            self._stopping = True
            self._closed = self._leased
            self._state.notify_all()
        self.wake()
        if self._closed:
            self._take_back()
        elif self._unbegun and not self.consumers:
            self.set_consumers(1)

    def wake(self) -> None:
        """Have another look at the queue."""
        self._waiter.wake()

    # -- what is seen of it ----------------------------------------------------------------------------------------

    def sight(self) -> Sight:
        """What the balance is to know."""
        now = monotonic()
        with self._state:
            return Sight(
                consumers=self.consumers,
                busy=self._busy,
                waiting=self._waiting(),
                behind=now - self._behind_since,
                idle=0 if self._busy >= self.consumers else now - self._idle_since,
                minimum=0 if self._stopping else self.minimum,
                maximum=self.maximum,
            )

    def set_consumers(self, number: int) -> None:
        """Add consumers, or let some go."""
        with self._state:
            if number == self.consumers:
                return
            self.consumers = number
            self._behind_since = self._idle_since = monotonic()
            self.pool.resize(number)
            self._state.notify_all()

    def is_quiet(self) -> bool:
        """Whether nothing is held, and no consumer is there who may retire."""
        with self._state:
            return not self._assignments and self.consumers == self.minimum

    def holds(self) -> bool:
        return bool(self._assignments)

    def held(self) -> list[Assignment]:
        """The assignments whose messages are held: waiting for a consumer, with one, or waiting to be finished."""
        with self._state:
            return list(self._assignments)

    def running(self) -> list[Assignment]:
        """The assignments at which a handler works."""
        with self._state:
            return [assignment for assignment in self._assignments if assignment.runs]

    def finished(self, assignment: Assignment) -> None:
        """The messages of an assignment are not held any more."""
        if self._drain is not None:
            self._drain.before_a_finish()
        with self._state:
            self._assignments.discard(assignment)
        if self._drain is not None:
            self._drain.finished()
        if self.queue.definition.grouped:
            self.wake()  # the next one's turn may have come

    def await_consumers(self, deadline: float) -> bool:
        """After `stop`: wait until no handler runs, nor is to; whether that is so."""
        with self._state:
            self._state.wait_for(lambda: not (self._unbegun or self.running()), max(0, deadline - monotonic()))
            self._closed = True
        self._take_back()
        return not self.running()

    def abandon(self) -> list[Assignment]:
        """End the calls that run; the assignments they have, of which no consumer reports any more."""
        with self._state:
            running = self.running()
            for assignment in running:
                assignment.ended = True
        self.pool.abandon()
        return running

    # -- called by the consumers ---------------------------------------------------------------------------------------

    def begin(self, assignment: Assignment) -> bool:
        with self._state:
            now = monotonic()
            over = self._leased and (assignment.lost or now > assignment.held + self.queue.definition.lease)
            if not self._closed and not over:
                assignment.began = now
                self._unbegun -= 1
                self._busy += 1
                if self._busy >= self.consumers:
                    self._idle_since = now
                self._state.notify_all()
                return True
        # Somebody else may have its messages by now.
        self.give_back(assignment)
        return False

    def end(self, assignment: Assignment, outcomes: Sequence[Outcome]) -> None:
        now = monotonic()
        with self._state:
            assert assignment.began is not None, "a consumer ends what it has begun"
            pace = (now - assignment.began) / len(assignment.claims)
            self._pace = pace if self._pace is None else 0.8 * self._pace + 0.2 * pace
            self._free(now)
            abandoned, assignment.ended = assignment.ended, True
        if not abandoned:
            self._ended(self, assignment, endings(self.queue.definition, assignment, outcomes))

    def give_back(self, assignment: Assignment) -> None:
        with self._state:
            self._unbegun -= 1
            assignment.ended = True
        self._give_back(assignment)

    def starting(self) -> None:
        with self._state:
            self._starting += 1
            self._busy += 1

    def started(self) -> None:
        with self._state:
            self._starting -= 1
            self._free(monotonic())

    # -- private -----------------------------------------------------------------------------------------------------

    def _room(self) -> int:
        """Wait until messages are wanted; how many. 0 when stopping, or drained."""
        with self._state:
            self._state.wait_for(lambda: self._over() or self._wanted() > 0)
            return 0 if self._over() else self._wanted()

    def _over(self) -> bool:
        return self._stopping or (self._drain is not None and self._drain.over)

    def _wanted(self) -> int:
        """How many messages to pop now; 0 until half of what lies ready is used up, so that pops are of many."""
        size = self.handler.batch or 1
        free = max(0, max(self.consumers, 0 if self._unready else 1) - self._busy)
        # With all consumers busy, one assignment more: it tells whether there is a backlog.
        more = size if not free and self.consumers < self.maximum else 0
        if self._leased:
            # Only after a pop that found all it wanted: one that finds too little sweeps, which the first message of
            # a quiet queue need not wait for.
            ahead = min(int(AHEAD / self._pace), MOST_AHEAD) * self.consumers if self._pace and self._found_all else 0
            more = max(more, ahead)
        elif self._starting or monotonic() - self._behind_since < GROW_AFTER:
            more = 0  # it would lie here, and be lost if this process died: not before a consumer can be added for it
        lying, target = self._waiting() * size, free * size + more
        return target - lying if lying <= target // 2 else 0

    def _pop(self, n: int) -> bool:
        """Whether there was something."""
        finished = 0 if self._drain is None else self._drain.before_a_pop(self)
        asked = monotonic()
        claims = self.queue.pop_many(n)
        if claims:
            self._hand_out(claims, n, asked)
        else:
            with self._state:
                self._found_all = False
                self._behind_since = monotonic()
            if self._drain is not None:
                self._drain.found_nothing(self, finished)
        return bool(claims)

    def _hand_out(self, claims: list[Claim], n: int, asked: float) -> None:
        size = self.handler.batch or 1
        assignments = [Assignment(claims[start : start + size], asked) for start in range(0, len(claims), size)]
        with self._state:
            closed = self._closed  # while the pop was under way
            self._assignments.update(assignments)
            if not closed:
                self._unbegun += len(assignments)
                self._found_all = len(claims) == n
                if not self._found_all:
                    self._behind_since = monotonic()
                for assignment in assignments:
                    self.pool.give(assignment)
        if closed:
            for assignment in assignments:
                self._give_back(assignment)
        elif self._stopping and not self.consumers:
            self.set_consumers(1)
        else:
            self._changed()

    def _take_back(self) -> None:
        for assignment in self.pool.stop():
            self.give_back(assignment)

    def _give_back(self, assignment: Assignment) -> None:
        self._ended(
            self,
            assignment,
            given_back(self.queue.definition, assignment, "the worker stopped before a consumer began"),
        )

    def _waiting(self) -> int:
        """Pieces that wait for a consumer, besides one for each that will soon be ready."""
        return max(0, self._unbegun - self._starting)

    def _free(self, now: float) -> None:
        """A consumer can take an assignment again."""
        if self._busy >= self.consumers:
            self._idle_since = now
        self._busy -= 1
        self._state.notify_all()


def pause_after(failures: int) -> float:
    """Seconds until the next try."""
    first, last = BACKOFF
    return min(first * 2.0 ** min(failures - 1, 100), last)  # an outage may be long
