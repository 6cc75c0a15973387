"""The consumers of one queue of a worker: each takes assignments, calls the handler, and reports the outcomes."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread, Timer, get_ident
from typing import Protocol, Self

from tablequeue.errors import Cancelled
from tablequeue.model.message import Claim
from tablequeue.observe.telemetry import processing, recording
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import Outcome, Retry


class TimedOut(BaseException):
    """Raised in a handler that has exceeded its time-out.

    It is not an Exception, so it also ends a handler that catches every Exception and goes on.
    """

    def __str__(self) -> str:
        return "the handler took longer than its time-out"


@dataclass(eq=False, slots=True)
class Assignment:
    """The messages of one call of a handler. Times are of this process's monotonic clock."""

    claims: list[Claim]
    leased_at: float
    """When the leases were last requested: by the pop, or by an extension."""
    popped_at: float
    range: SharedLease | None = None
    """The range of the messages, in a subscription."""
    began_at: float | None = None
    """When a consumer began; None while the assignment waits for one."""
    ended_at: float | None = None
    """When the consumer ended. After that the assignment only waits to be finished."""
    lost: set[int] = field(default_factory=set)
    """The ids of messages that are known to have lost their leases."""
    cancelled: set[int] = field(default_factory=set)
    """The ids of messages that are known to be cancelled."""
    interrupted: bool = False
    """Whether its call was interrupted because all of its messages were cancelled."""

    @property
    def ended(self) -> bool:
        """Whether no consumer works on it any more."""
        return self.ended_at is not None

    @property
    def running(self) -> bool:
        """Whether a handler works on it."""
        return self.began_at is not None and not self.ended


@dataclass(eq=False, slots=True)
class SharedLease:
    """The messages of one pop of a subscription, which have one lease. Completed together, they need one statement."""

    open: int
    """How many of them have not ended."""


class PoolOwner(Protocol):
    """The calls of a pool to its owner, the fetcher. Consumers make them from any thread.

    `begin` and `end` are called for every message, and take no lock.
    """

    def begin(self, assignment: Assignment) -> bool:
        """Ask to begin the assignment. After False the consumer must not touch it: the owner has taken it back."""

    def end(self, assignment: Assignment, outcomes: Sequence[Outcome]) -> None:
        """Report the outcomes of an assignment that was begun."""

    def give_back(self, assignment: Assignment) -> None:
        """Return an assignment that the consumer cannot begin."""

    def consumer_busy(self) -> None:
        """Report a consumer that is new, or that has got an assignment after waiting for one."""

    def consumer_idle(self) -> None:
        """Report a busy consumer that waits for an assignment, or that ends."""

    def consumer_starting(self) -> None:
        """Report a busy consumer that takes no assignment before `consumer_ready`."""

    def consumer_ready(self) -> None:
        """Report that a busy consumer can take an assignment again."""

    def fail(self, error: Exception) -> None:
        """Report that consumers cannot be started."""


class Pool(ABC):
    """A variable number of consumers. Excess consumers retire as soon as they have ended their assignments."""

    def __init__(self, handler: Handler, owner: PoolOwner) -> None:
        self.handler = handler
        self._owner = owner
        self._recording = recording()
        """Whether the program records spans. Asked once: it takes 2 µs."""
        self._lock = Lock()
        self._target = 0
        self.alive = 0
        """How many consumers exist, including those that are to retire."""
        self._assignments: deque[Assignment] = deque()
        """The assignments that no consumer has taken. Consumers take them without a lock."""

    def resize(self, number: int) -> None:
        """Start consumers, or let some retire, so that there will be `number` of them."""
        with self._lock:
            self._target = number
            change = number - self.alive
            self.alive = max(self.alive, number)
        for _ in range(change):
            self._start_consumer()
        if change < 0:
            self._wake(-change)

    def put(self, assignments: Sequence[Assignment]) -> None:
        """Give the assignments to the next consumers that are free."""
        self._assignments.extend(assignments)
        # After that: a consumer reports that it is idle before it looks for the last time.
        if idle := min(len(assignments), self._idle):
            self._wake(idle)

    @property
    def waiting(self) -> int:
        """How many assignments no consumer has taken."""
        return len(self._assignments)

    def stop(self) -> list[Assignment]:
        """Start no more consumers, and return the assignments that no consumer has taken. Does not wait."""
        taken: list[Assignment] = []
        while (assignment := self._take()) is not None:
            taken.append(assignment)
        return taken

    @abstractmethod
    def abandon(self) -> None:
        """End the calls that run, as far as that is possible."""

    @abstractmethod
    def interrupt(self, assignment: Assignment) -> None:
        """Interrupt the call of an assignment with cancelled messages, if it runs and that is possible.

        Note it in `interrupted`. A call that is about to begin is not interrupted. The handler may still go on, and
        complete the message.
        """

    @abstractmethod
    def close(self, timeout: float) -> None:
        """After `resize(0)`: wait for threads or processes that would outlive the worker."""

    # -- for the kinds of pools ----------------------------------------------------------------------------------------

    @abstractmethod
    def _start_consumer(self) -> None:
        """Start a consumer, which ends when `_retires` says so."""

    @property
    @abstractmethod
    def _idle(self) -> int:
        """How many consumers sleep until `_wake`."""

    @abstractmethod
    def _wake(self, number: int) -> None:
        """Let this number of idle consumers look for an assignment, and ask `_retires`."""

    def _take(self) -> Assignment | None:
        try:
            return self._assignments.popleft()
        except IndexError:
            return None

    def _retires(self) -> bool:
        """Whether the calling consumer is in excess, and has to end."""
        if self.alive <= self._target:
            return False
        with self._lock:
            retires = self.alive > self._target
            self.alive -= retires
        return retires

    @staticmethod
    def _failed(assignment: Assignment, error: str | BaseException) -> Sequence[Outcome]:
        return [Retry(error=error)] * len(assignment.claims)


class ThreadPool(Pool):
    """Consumers that are threads."""

    def __init__(self, handler: Handler, owner: PoolOwner) -> None:
        super().__init__(handler, owner)
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._sleeping = 0
        self._limits: dict[Assignment, TimeLimit] = {}
        """The time limits of the calls that run."""

    def abandon(self) -> None:
        """Do nothing: a thread cannot be ended."""

    def interrupt(self, assignment: Assignment) -> None:
        """Interrupt a call that has a time-out. Other code of a thread cannot be interrupted safely."""
        limit = self._limits.get(assignment)
        if limit is not None:
            assignment.interrupted = True
            limit.interrupt(Cancelled)

    def close(self, timeout: float) -> None:
        """Do nothing: a thread ends with the process."""

    # -- private -----------------------------------------------------------------------------------------------------

    def _start_consumer(self) -> None:
        Thread(target=self._consume, name=f"consumer of {self.handler.queue}", daemon=True).start()

    @property
    def _idle(self) -> int:
        return self._sleeping

    def _wake(self, number: int) -> None:
        for _ in range(number):
            self._wakeups.put(None)

    def _consume(self) -> None:
        self._owner.consumer_busy()
        while (assignment := self._next()) is not None:
            if self._owner.begin(assignment):
                self._owner.end(assignment, self._outcomes(assignment))

    def _next(self) -> Assignment | None:
        """Return the next assignment, as soon as there is one; None if the calling consumer has to end."""
        retires = self._retires()
        if not retires and (assignment := self._take()) is not None:
            return assignment
        self._owner.consumer_idle()
        while not retires:
            self._sleep()
            retires = self._retires()
            if not retires and (assignment := self._take()) is not None:
                self._owner.consumer_busy()
                return assignment
        return None

    def _sleep(self) -> None:
        with self._lock:
            self._sleeping += 1
        if not self._assignments:
            self._wakeups.get()
        with self._lock:
            self._sleeping -= 1

    def _outcomes(self, assignment: Assignment) -> Sequence[Outcome]:
        try:
            return self._call(assignment)
        except BaseException as error:  # a SystemExit of a handler is a failure of the message, not of the consumer
            return self._failed(assignment, error)

    def _call(self, assignment: Assignment) -> Sequence[Outcome]:
        claims, seconds = assignment.claims, self.handler.timeout
        if seconds is None and not self._recording:
            result = self.handler.call(claims)
        else:
            with processing(self.handler.queue, claims), self._limited(assignment):
                result = self.handler.call(claims)
        return self.handler.outcomes(result, len(claims))

    @contextmanager
    def _limited(self, assignment: Assignment) -> Iterator[None]:
        if self.handler.timeout is None:
            yield
            return
        limit = TimeLimit(self.handler.timeout)
        try:
            with limit as self._limits[assignment]:
                yield
        finally:
            del self._limits[assignment]
            limit.end()  # again: an interrupt may have arrived at the beginning of the first


class TimeLimit:
    """Raises TimedOut in the thread of the block when its time is over, or at its end if the block has caught it.

    `interrupt` raises another exception there.
    """

    def __init__(self, seconds: float) -> None:
        self._thread = ctypes.c_ulong(get_ident())
        self._lock = Lock()
        self._ended = self._expired = False
        self._timer = Timer(seconds, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        self.end()
        if self._expired and kind is None:
            raise TimedOut

    def end(self) -> None:
        """Interrupt the thread no more: it goes on with other work. May be repeated."""
        with self._lock:
            self._ended = True
        self._timer.cancel()
        # An interrupt that is on its way arrives before this line, or never.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(self._thread, None)

    def interrupt(self, error: type[BaseException]) -> None:
        with self._lock:
            if not self._ended:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(self._thread, ctypes.py_object(error))

    def _expire(self) -> None:
        with self._lock:
            self._expired = not self._ended
        self.interrupt(TimedOut)
