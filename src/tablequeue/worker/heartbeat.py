"""Keeps the leases of what a worker holds: one thread, which looks at all of it a few times a lease."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event, Thread
from time import monotonic

from tablequeue.errors import LeaseLost
from tablequeue.worker.fetcher import Fetcher
from tablequeue.worker.pool import Assignment

logger = logging.getLogger("tablequeue.worker")

# A lease is extended when half of it is over, and looked at so many times in all: three tries before it is lost.
LOOKS = 8
LONGEST_PAUSE = 5.0


class Heartbeat:
    """Extends leases until `close`. A call that is over its time-out is not held any longer."""

    def __init__(self, fetchers: Sequence[Fetcher]) -> None:
        self._fetchers = [fetcher for fetcher in fetchers if fetcher.queue.definition.delivery == "at_least_once"]
        shortest = min((fetcher.queue.definition.lease for fetcher in self._fetchers), default=float("inf"))
        self._pause = min(shortest / LOOKS, LONGEST_PAUSE)
        self._closed = Event()
        self._waiting: set[Assignment] = set()
        """Those that a thread of their own extends at this moment."""
        self._thread = Thread(target=self._run, name="heartbeat of the worker", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closed.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._closed.wait(self._pause):
            for fetcher in self._fetchers:
                for assignment in fetcher.held():
                    if self._needs_extension(fetcher, assignment):
                        self._extend_beside(fetcher, assignment) if assignment.runs else self._extend(
                            fetcher, assignment
                        )

    @staticmethod
    def _needs_extension(fetcher: Fetcher, assignment: Assignment) -> bool:
        now, timeout = monotonic(), fetcher.handler.timeout
        overdue = timeout is not None and assignment.runs and now > (assignment.began or now) + timeout + 1
        return now > assignment.held + fetcher.queue.definition.lease / 2 and not overdue

    def _extend_beside(self, fetcher: Fetcher, assignment: Assignment) -> None:
        """In a thread: the handler may have its messages locked, in a transaction of its own, for as long as it runs.

        The leases of the others do not wait for that.
        """
        if assignment not in self._waiting:
            self._waiting.add(assignment)
            Thread(target=self._extend, args=(fetcher, assignment), name="heartbeat of a call", daemon=True).start()

    def _extend(self, fetcher: Fetcher, assignment: Assignment) -> None:
        now, extended = monotonic(), False
        try:
            for claim in [claim for claim in assignment.claims if claim.id not in assignment.lost]:
                try:
                    claim.extend()
                    extended = True
                except LeaseLost:
                    # It was finished now; or this process had stood still, and somebody else has the message.
                    assignment.lost.add(claim.id)
            if extended:
                assignment.held = now
        except Exception as error:  # all are tried again at the next look
            logger.warning("%s: the lease of message %d was not extended: %s", fetcher.queue.name, claim.id, error)
        finally:
            self._waiting.discard(assignment)
