"""Extends the leases of all messages that a worker holds: one thread, which checks them several times a lease."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event, Thread
from time import monotonic

from tablequeue.errors import LeaseLost
from tablequeue.worker.fetcher import Fetcher
from tablequeue.worker.pool import Assignment

logger = logging.getLogger("tablequeue.worker")

# A lease is extended when half of it is over. With 8 checks a lease, three attempts fit in before it expires.
CHECKS_PER_LEASE = 8
LONGEST_PAUSE = 5.0


class Heartbeat:
    """Extends leases until `close`. A call that has exceeded its time-out is not extended any longer."""

    def __init__(self, fetchers: Sequence[Fetcher]) -> None:
        self._fetchers = [fetcher for fetcher in fetchers if fetcher.queue.definition.delivery == "at_least_once"]
        shortest = min((fetcher.queue.definition.lease for fetcher in self._fetchers), default=float("inf"))
        self._pause = min(shortest / CHECKS_PER_LEASE, LONGEST_PAUSE)
        self._closed = Event()
        self._in_threads: set[Assignment] = set()
        """Assignments that a thread of their own extends at this moment."""
        self._thread = Thread(target=self._run, name="heartbeat of the worker", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closed.set()
        self._thread.join(timeout)

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.wait(self._pause):
            for fetcher in self._fetchers:
                for assignment in fetcher.assignments():
                    if self._needs_extension(fetcher, assignment):
                        extend = self._extend_in_thread if assignment.running else self._extend
                        extend(fetcher, assignment)

    @staticmethod
    def _needs_extension(fetcher: Fetcher, assignment: Assignment) -> bool:
        now, timeout = monotonic(), fetcher.handler.timeout
        overdue = timeout is not None and assignment.running and now > (assignment.began_at or now) + timeout + 1
        return now > assignment.leased_at + fetcher.queue.definition.lease / 2 and not overdue

    def _extend_in_thread(self, fetcher: Fetcher, assignment: Assignment) -> None:
        """Extend the leases of a call that runs.

        The handler may have locked its messages, in a transaction of its own, for as long as it runs. Other leases do
        not wait for that.
        """
        if assignment not in self._in_threads:
            self._in_threads.add(assignment)
            Thread(target=self._extend, args=(fetcher, assignment), name="heartbeat of a call", daemon=True).start()

    def _extend(self, fetcher: Fetcher, assignment: Assignment) -> None:
        now, extended = monotonic(), False
        try:
            for claim in [claim for claim in assignment.claims if claim.id not in assignment.lost]:
                try:
                    claim.extend()
                    extended = True
                except LeaseLost:
                    # It has just been finished; or this process stood still, and another consumer has the message.
                    assignment.lost.add(claim.id)
            if extended:
                assignment.leased_at = now
        except Exception as error:  # the next check tries all again
            logger.warning("%s: the lease of message %d was not extended: %s", fetcher.queue.name, claim.id, error)
        finally:
            self._in_threads.discard(assignment)
