"""Extends the leases of all messages that a worker holds: one thread, which checks them several times a lease."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from threading import Event, Thread
from time import monotonic

from tablequeue.consumer import Consumer
from tablequeue.errors import LeaseLost
from tablequeue.model.message import Claim
from tablequeue.verbs.refusals import first_of
from tablequeue.worker.fetcher import Fetcher
from tablequeue.worker.pool import Assignment, SharedLease

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
        """The first assignment of a call that a separate thread makes at this moment."""
        self.thread = Thread(target=self._run, name="heartbeat of the worker", daemon=True)
        self.thread.start()

    def close(self, timeout: float) -> None:
        self._closed.set()
        self.thread.join(timeout)

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.wait(self._pause):
            for fetcher in self._fetchers:
                for sharing in _by_call(fetcher.assignments()):
                    if any(self._needs_extension(fetcher, assignment) for assignment in sharing):
                        running = any(assignment.running for assignment in sharing)
                        (self._extend_in_thread if running else self._extend)(fetcher, sharing)

    @staticmethod
    def _needs_extension(fetcher: Fetcher, assignment: Assignment) -> bool:
        now, timeout = monotonic(), fetcher.handler.timeout
        overdue = timeout is not None and assignment.running and now > (assignment.began_at or now) + timeout + 1
        return now > assignment.leased_at + fetcher.queue.definition.lease / 2 and not overdue

    def _extend_in_thread(self, fetcher: Fetcher, sharing: Sequence[Assignment]) -> None:
        """Extend the lease of a running call.

        The handler may have locked its messages, in a transaction of its own, for as long as it runs. Other leases do
        not wait for that.
        """
        if sharing[0] not in self._in_threads:
            self._in_threads.add(sharing[0])
            Thread(target=self._extend, args=(fetcher, sharing), name="heartbeat of a call", daemon=True).start()

    def _extend(self, fetcher: Fetcher, sharing: Sequence[Assignment]) -> None:
        now = monotonic()
        claims = [claim for assignment in sharing for claim in assignment.claims if claim.id not in assignment.lost]
        try:
            lost = _not_extended(fetcher.queue, claims)
            for assignment in sharing:
                ids = {claim.id for claim in assignment.claims}
                assignment.lost.update(lost & ids)
                if ids - assignment.lost:
                    assignment.leased_at = now
        except Exception as error:  # the next check tries all again
            first = first_of([claim.id for claim in claims])
            logger.warning("%s: the leases of messages %s were not extended: %s", fetcher.queue.name, first, error)
        finally:
            self._in_threads.discard(sharing[0])


def _by_call(assignments: Sequence[Assignment]) -> Iterable[list[Assignment]]:
    """Return the assignments in lists, each for one call: a range, a running assignment, or the waiting ones of a pop.

    No call has the same message twice, as `LeaseLost` names messages and not claims: after its lease was lost, a
    message may have been popped again.
    """
    by_call: dict[Assignment | SharedLease | str, list[Assignment]] = defaultdict(list)
    for assignment in assignments:
        waiting = assignment.claims[0].token
        by_call[assignment.range or (assignment if assignment.running else waiting)].append(assignment)
    return by_call.values()


def _not_extended(queue: Consumer, claims: Sequence[Claim]) -> set[int]:
    """Extend the leases. Return the ids of the messages that are not held.

    They have just been finished; or this process stood still, and another consumer has them.
    """
    try:
        queue.extend_many(claims)
        return set()
    except LeaseLost as error:
        return {*error.ids}
