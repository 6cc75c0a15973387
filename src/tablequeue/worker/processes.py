"""Consumers with a process each, for handlers whose work is all Python's, or that may take their process down.

A consumer takes a message only when its process is ready to call the handler. Until then the message waits, its lease
is extended, and the time-out of the handler does not run.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Condition, Event

from tablequeue.worker.child import Address, Child, DiedAtStart, ProcessEnded, dumped
from tablequeue.worker.fetcher import PASSING, pause_after
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import Outcome
from tablequeue.worker.pool import Assignment, ThreadPool, TimedOut, Told

logger = logging.getLogger("tablequeue.worker")

# Seconds that a process may take to be ready: for its interpreter, the imports of the handler, and the connection.
START_TIMEOUT = 120.0
# Processes of a consumer that may die at the start, one after the other, before the worker gives up.
STARTS = 3


class ProcessPool(ThreadPool):
    """Threads that hold the messages and their leases, while a process each calls the handler."""

    def __init__(self, handler: Handler, told: Told, address: Address) -> None:
        super().__init__(handler, told)
        self._dumped = dumped(handler)
        self._address = address
        self._stopped = Event()
        self._state = Condition()
        self._children: set[Child] = set()

    def stop(self) -> list[Assignment]:
        self._stopped.set()
        for child in self._all():
            if not child.ready:
                child.kill()
        return super().stop()

    def abandon(self) -> None:
        self._stopped.set()
        for child in self._all():
            child.kill()

    def close(self, timeout: float) -> None:
        with self._state:
            self._state.wait_for(lambda: not self._children, timeout)

    # -- private -----------------------------------------------------------------------------------------------------

    def _add(self) -> None:
        self._told.starting()
        super()._add()

    def _consume(self) -> None:
        child = self._start()
        try:
            while child is not None and not self._goes():
                assignment = self._assignments.get()
                child = self._living(child)  # it may have ended while it had nothing to do
                if assignment is None:
                    continue
                if child is None:
                    self._told.give_back(assignment)
                elif self._told.begin(assignment):
                    self._told.end(assignment, self._outcomes_of(child, assignment))
                    if child.broken:
                        child = self._living(child)
        finally:
            if child is not None:
                self._end(child)

    def _outcomes_of(self, child: Child, assignment: Assignment) -> Sequence[Outcome]:
        try:
            return child.call(assignment.claims, self.handler.timeout)
        except (TimedOut, ProcessEnded) as error:
            return self.failed(assignment, str(error))  # where it was raised says nothing of the handler
        except BaseException as error:
            return self.failed(assignment, error)

    def _living(self, child: Child) -> Child | None:
        """The process, or another one if it has ended; None if there is to be none."""
        if child.lives():
            return child
        self._end(child)
        if not child.broken:
            logger.warning("%s: a process ended while it had nothing to do; another one starts", self.handler.queue)
        self._told.starting()
        return self._start()

    def _start(self) -> Child | None:
        """A process that is ready to call the handler; None if there is to be none."""
        failures = 0
        while not self._stopped.is_set():
            try:
                child = self._new()
                self._told.started()
                return child
            except (*PASSING, DiedAtStart) as error:
                failures += 1
                if self._stopped.is_set():
                    break
                if isinstance(error, DiedAtStart) and failures >= STARTS:
                    self._told.refuse(error)
                    break
                pause = pause_after(failures)
                logger.warning("%s: %s Trying again in %.1f s.", self.handler.queue, error, pause)
                self._stopped.wait(pause)
            except Exception as error:
                self._told.refuse(error)
                break
        return None

    def _new(self) -> Child:
        """A process, when it is ready."""
        try:
            child = Child(self._dumped, self.handler.queue, self._address)
        except OSError as error:
            raise DiedAtStart(
                f"A process of the handler of {self.handler.queue!r} cannot be started: {error}.",
                "Give the worker more memory, processes or open files, or fewer consumers.",
            ) from error
        with self._state:
            self._children.add(child)
        try:
            if self._stopped.is_set():  # and `stop` may have missed this one
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

    def _all(self) -> list[Child]:
        with self._state:
            return list(self._children)
