"""The consumers of a queue: each takes one assignment after the other, calls the handler, and reports."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread, Timer, get_ident
from time import monotonic
from typing import Any, Protocol

from tablequeue.message import Claim
from tablequeue.telemetry import processing
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import Outcome, Retry, outcome_of, outcomes_of


class TimedOut(BaseException):
    """Raised in a handler when its time is over. No Exception: a handler that goes on after any error is not to."""

    def __str__(self) -> str:
        return "the handler took longer than its time-out"


@dataclass(eq=False, slots=True)
class Assignment:
    """What one call of a handler works at. Times are of this process's monotonic clock."""

    claims: list[Claim]
    held: float
    """When its leases were last asked for or extended."""
    popped: float = field(default_factory=monotonic)
    began: float | None = None
    """When a consumer began; None while it waits for one."""
    ended: bool = False
    """Whether it only waits to be finished."""
    lost: set[int] = field(default_factory=set)
    """The ids of its messages whose leases are known to be lost."""

    @property
    def runs(self) -> bool:
        """Whether a handler works at it."""
        return self.began is not None and not self.ended


class Told(Protocol):
    """What consumers say of themselves, from any thread."""

    def begin(self, assignment: Assignment) -> bool:
        """A consumer would begin with the assignment. False: it may not, and has it no more."""

    def end(self, assignment: Assignment, outcomes: Sequence[Outcome]) -> None:
        """It has ended."""

    def give_back(self, assignment: Assignment) -> None:
        """A consumer has the assignment and cannot begin with it."""

    def starting(self) -> None:
        """A consumer makes itself ready: it takes nothing until it is."""

    def started(self) -> None:
        """It is ready."""

    def refuse(self, error: Exception) -> None:
        """There can be no consumers."""


class Pool(ABC):
    """Consumers, as many as are wanted. Those that are too many go as soon as they have ended what they have."""

    def __init__(self, handler: Handler, told: Told) -> None:
        self.handler = handler
        self._told = told
        self._counting = Lock()
        self._wanted = 0
        self.consumers = 0
        """How many there are, with those that are still to go."""

    def resize(self, number: int) -> None:
        """Have so many consumers: add some, or let some go."""
        with self._counting:
            self._wanted = number
            change = number - self.consumers
            self.consumers = max(self.consumers, number)
        for _ in range(change):
            self._add()
        for _ in range(-change):
            self._ask()

    @abstractmethod
    def _add(self) -> None:
        """One consumer more, which goes when `_goes` tells it so."""

    @abstractmethod
    def _ask(self) -> None:
        """Have one that has nothing to do look whether it is to go."""

    def _goes(self) -> bool:
        """Whether the consumer that asks is one too many."""
        with self._counting:
            goes = self.consumers > self._wanted
            self.consumers -= goes
        return goes

    @abstractmethod
    def give(self, assignment: Assignment) -> None:
        """An assignment for the consumer that is free next."""

    @abstractmethod
    def stop(self) -> list[Assignment]:
        """Make no more consumers ready; the assignments that none has taken. Returns at once."""

    @abstractmethod
    def abandon(self) -> None:
        """End the calls that run, as far as that is possible."""

    @abstractmethod
    def close(self, timeout: float) -> None:
        """After all consumers were asked to go: wait for what would outlast the worker."""

    def argument(self, assignment: Assignment) -> Any:
        """What the handler is called with."""
        return assignment.claims[0] if self.handler.batch is None else assignment.claims

    def outcomes(self, assignment: Assignment, result: Any) -> Sequence[Outcome]:
        """What the handler has said of each message."""
        if self.handler.batch is None:
            return [outcome_of(result)]
        return outcomes_of(result, len(assignment.claims))

    @staticmethod
    def failed(assignment: Assignment, error: str | BaseException) -> Sequence[Outcome]:
        return [Retry(error=error)] * len(assignment.claims)


class ThreadPool(Pool):
    """Consumers that are threads."""

    def __init__(self, handler: Handler, told: Told) -> None:
        super().__init__(handler, told)
        self._assignments: SimpleQueue[Assignment | None] = SimpleQueue()

    def _add(self) -> None:
        Thread(target=self._consume, name=f"consumer of {self.handler.queue}", daemon=True).start()

    def _ask(self) -> None:
        self._assignments.put(None)

    def give(self, assignment: Assignment) -> None:
        self._assignments.put(assignment)

    def stop(self) -> list[Assignment]:
        assignments: list[Assignment | None] = []
        with suppress(Empty):
            while True:
                assignments.append(self._assignments.get_nowait())
        for _ in range(assignments.count(None)):
            self._ask()
        return [assignment for assignment in assignments if assignment is not None]

    def abandon(self) -> None:
        """A thread cannot be ended."""

    def close(self, timeout: float) -> None:
        """A thread ends with the process."""

    def _consume(self) -> None:
        while not self._goes():
            if (assignment := self._assignments.get()) is not None and self._told.begin(assignment):
                self._told.end(assignment, self._outcomes(assignment))

    def _outcomes(self, assignment: Assignment) -> Sequence[Outcome]:
        try:
            return self._call(assignment)
        except BaseException as error:  # a SystemExit of a handler is a failure of the message, not of the consumer
            return self.failed(assignment, error)

    def _call(self, assignment: Assignment) -> Sequence[Outcome]:
        seconds = self.handler.timeout
        with (
            processing(self.handler.queue, assignment.claims),
            nullcontext() if seconds is None else TimeLimit(seconds),
        ):
            result = self.handler.function(self.argument(assignment))
        return self.outcomes(assignment, result)


class TimeLimit:
    """Raises TimedOut in the thread of the block when its time is over: there, or at its end if the block caught it."""

    def __init__(self, seconds: float) -> None:
        self._thread = ctypes.c_ulong(get_ident())
        self._lock = Lock()
        self._ended = self._over = False
        self._timer = Timer(seconds, self._interrupt)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, kind: object, *exc: object) -> None:
        with self._lock:
            self._ended = True
        self._timer.cancel()
        # If it is on its way, it arrives before this, or never.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(self._thread, None)
        if self._over and kind is None:
            raise TimedOut

    def _interrupt(self) -> None:
        with self._lock:
            if not self._ended:
                self._over = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(self._thread, ctypes.py_object(TimedOut))
