"""Extends the leases of all messages that a worker holds: one thread, which checks them several times a lease.

The messages of a range have one lease, which is extended once for all of them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from threading import Event, Thread
from time import monotonic

from tablequeue.errors import LeaseLost
from tablequeue.message import Claim
from tablequeue.worker.fetcher import Fetcher
from tablequeue.worker.pool import Assignment, Range

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
        """The first one of the assignments with one lease that a thread of its own extends at this moment."""
        self._thread = Thread(target=self._run, name="heartbeat of the worker", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closed.set()
        self._thread.join(timeout)

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.wait(self._pause):
            for fetcher in self._fetchers:
                for sharing in _by_lease(fetcher.assignments()):
                    if any(self._needs_extension(fetcher, assignment) for assignment in sharing):
                        running = any(assignment.running for assignment in sharing)
                        (self._extend_in_thread if running else self._extend)(fetcher, sharing)

    @staticmethod
    def _needs_extension(fetcher: Fetcher, assignment: Assignment) -> bool:
        now, timeout = monotonic(), fetcher.handler.timeout
        overdue = timeout is not None and assignment.running and now > (assignment.began_at or now) + timeout + 1
        return now > assignment.leased_at + fetcher.queue.definition.lease / 2 and not overdue

    def _extend_in_thread(self, fetcher: Fetcher, sharing: Sequence[Assignment]) -> None:
        """Extend a lease of a call that runs.

        The handler may have locked its messages, in a transaction of its own, for as long as it runs. Other leases do
        not wait for that.
        """
        if sharing[0] not in self._in_threads:
            self._in_threads.add(sharing[0])
            Thread(target=self._extend, args=(fetcher, sharing), name="heartbeat of a call", daemon=True).start()

    def _extend(self, fetcher: Fetcher, sharing: Sequence[Assignment]) -> None:
        try:
            if sharing[0].range is None:
                self._extend_each(sharing[0])
            else:
                self._extend_range(sharing)
        except Exception as error:  # the next check tries all again
            id = sharing[0].claims[0].id
            logger.warning("%s: the lease of message %d was not extended: %s", fetcher.queue.name, id, error)
        finally:
            self._in_threads.discard(sharing[0])

    @staticmethod
    def _extend_each(assignment: Assignment) -> None:
        now, extended = monotonic(), False
        for claim in [claim for claim in assignment.claims if claim.id not in assignment.lost]:
            extended = _extended(assignment, claim) or extended
        if extended:
            assignment.leased_at = now

    @staticmethod
    def _extend_range(sharing: Sequence[Assignment]) -> None:
        """Extend the lease of a range, by any message that is still held."""
        now = monotonic()
        # Those that no handler has begun first: nobody but us can have finished them.
        for assignment in sorted(sharing, key=lambda assignment: assignment.began_at is not None):
            begun = assignment.began_at is not None
            for claim in [claim for claim in assignment.claims if claim.id not in assignment.lost]:
                if _extended(assignment, claim):
                    for other in sharing:
                        other.leased_at = now
                    return
                if not begun:
                    for other in sharing:
                        other.lost.update(claim.id for claim in other.claims)
                    return


def _by_lease(assignments: Sequence[Assignment]) -> Iterable[list[Assignment]]:
    """Return the assignments in lists, each with one lease, or of one call of a handler."""
    by_lease: dict[Assignment | Range, list[Assignment]] = defaultdict(list)
    for assignment in assignments:
        by_lease[assignment.range or assignment].append(assignment)
    return by_lease.values()


def _extended(assignment: Assignment, claim: Claim) -> bool:
    try:
        claim.extend()
        return True
    except LeaseLost:
        # It has just been finished; or this process stood still, and another consumer has the message.
        assignment.lost.add(claim.id)
        return False
