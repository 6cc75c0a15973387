"""Consumers with a process each, for handlers that compute in Python, or that may crash their process.

A consumer takes a message only when its process is ready to call the handler. Until then the message waits, its lease
is extended, and the time-out of the handler does not run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Condition, Event

from tablequeue.errors import TRANSIENT, Cancelled
from tablequeue.model.pacing import backoff
from tablequeue.worker.child import Address, Child, DiedAtStart, ProcessEnded, pickled
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import Outcome
from tablequeue.worker.pool import Assignment, PoolOwner, ThreadPool, TimedOut

logger = logging.getLogger("tablequeue.worker")

# Seconds that a process may take to become ready: to start Python, import the handler, and connect.
START_TIMEOUT = 120.0
# How many processes of a consumer may die at the start in a row, before the worker gives up.
MAX_STARTS = 3


class ProcessPool(ThreadPool):
    """Consumers that are threads, each with a process that calls the handler."""

    def __init__(self, handler: Handler, owner: PoolOwner, address: Address) -> None:
        super().__init__(handler, owner)
        self._pickled = pickled(handler)
        self._address = address
        self._stopped = Event()
        self._state = Condition()
        self._children: set[Child] = set()
        self._calling: dict[Assignment, Child] = {}
        """The processes that run a handler."""

    def stop(self) -> list[Assignment]:
        self._stopped.set()
        for child in self._all_children():
            if not child.ready:
                child.kill()
        return super().stop()

    def abandon(self) -> None:
        self._stopped.set()
        for child in self._all_children():
            child.kill()

    def interrupt(self, assignment: Assignment) -> None:
        with self._state:
            if assignment in self._calling:
                assignment.interrupted = True
                self._calling[assignment].kill()

    def close(self, timeout: float) -> None:
        with self._state:
            self._state.wait_for(lambda: not self._children, timeout)

    # -- private -----------------------------------------------------------------------------------------------------

    def _start_consumer(self) -> None:
        self._owner.consumer_busy()
        self._owner.consumer_starting()
        super()._start_consumer()

    def _consume(self) -> None:
        child = self._start()
        if child is not None:
            self._owner.consumer_ready()
        try:
            while child is not None and (assignment := self._next()) is not None:
                child = self._replaced(child)  # it may have ended while it was idle
                if child is None:
                    self._owner.give_back(assignment)
                elif self._owner.begin(assignment):
                    self._owner.end(assignment, self._outcomes_of(child, assignment))
                    if child.broken:
                        child = self._replaced(child)
        finally:
            if child is not None:
                self._end(child)

    def _outcomes_of(self, child: Child, assignment: Assignment) -> Sequence[Outcome]:
        with self._state:
            self._calling[assignment] = child
        try:
            return child.call(assignment.claims, self.handler.timeout)
        except (TimedOut, ProcessEnded) as error:
            if len(assignment.cancelled) == len(assignment.claims):
                return self._failed(assignment, Cancelled())
            return self._failed(assignment, str(error))  # the traceback would say nothing about the handler
        except BaseException as error:
            return self._failed(assignment, error)
        finally:
            with self._state:
                del self._calling[assignment]

    def _replaced(self, child: Child) -> Child | None:
        """Return the process, or a new one if it has ended; None while the pool stops, or if none can be started."""
        if child.is_usable():
            return child
        self._end(child)
        if not child.broken:
            logger.warning("%s: a process ended while it was idle; another one starts", self.handler.queue)
        return self._start()

    def _start(self) -> Child | None:
        """Return a process that is ready to call the handler; None as in `_replaced`."""
        failures = 0
        while not self._stopped.is_set():
            try:
                return self._start_one()
            except (*TRANSIENT, DiedAtStart) as error:
                failures += 1
                if self._stopped.is_set():
                    break
                if isinstance(error, DiedAtStart) and failures >= MAX_STARTS:
                    self._owner.fail(error)
                    break
                pause = backoff(failures)
                logger.warning("%s: %s Trying again in %.1f s.", self.handler.queue, error, pause)
                self._stopped.wait(pause)
            except Exception as error:
                self._owner.fail(error)
                break
        return None

    def _start_one(self) -> Child:
        """Start a process, and wait until it is ready."""
        try:
            child = Child(self._pickled, self.handler.queue, self._address)
        except OSError as error:
            raise DiedAtStart(
                f"A process of the handler of {self.handler.queue!r} cannot be started: {error}.",
                "Give the worker more memory, processes or open files, or fewer consumers.",
            ) from error
        with self._state:
            self._children.add(child)
        try:
            if self._stopped.is_set():  # `stop` may not have seen this one
                child.kill()
            child.await_ready(START_TIMEOUT)
        except BaseException:
            self._end(child)
            raise
        return child

    def _end(self, child: Child) -> None:
        child.end()
        with self._state:
            self._children.discard(child)
            self._state.notify_all()

    def _all_children(self) -> list[Child]:
        with self._state:
            return list(self._children)
