"""Checks whether messages in progress were cancelled, and interrupts their handlers: one thread for all queues.

It asks once a second, in one statement for each queue with handlers that run longer than a second. A message that is
finished sooner costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event, Thread
from time import monotonic

from tablequeue.ext import context_of
from tablequeue.model.message import note_cancelled
from tablequeue.verbs.cancel import cancelled_in_progress
from tablequeue.worker.fetcher import Fetcher

logger = logging.getLogger("tablequeue.worker")

# Seconds between two looks, and the minimum time that a handler has run when it is looked at.
INTERVAL = 1.0


class Cancellations:
    """Tells handlers of cancelled messages to stop, until `close`.

    A call is interrupted when all of its messages were cancelled, if its pool can do that. Before that, and in threads,
    the handler may ask `Claim.cancelled`.
    """

    def __init__(self, fetchers: Sequence[Fetcher]) -> None:
        self._fetchers = [fetcher for fetcher in fetchers if fetcher.queue.definition.delivery == "at_least_once"]
        self._closed = Event()
        self._thread = Thread(target=self._run, name="cancellations of the worker", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closed.set()
        self._thread.join(timeout)

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.wait(INTERVAL):
            for fetcher in self._fetchers:
                try:
                    _look(fetcher)
                except Exception as error:  # the database is away: the next look asks again
                    logger.debug("%s: whether messages were cancelled is not known: %s", fetcher.queue.name, error)


def _look(fetcher: Fetcher) -> None:
    since = monotonic() - INTERVAL
    running = [assignment for assignment in fetcher.running() if (assignment.began_at or since) <= since]
    asked = [claim.id for assignment in running for claim in assignment.claims if claim.id not in assignment.cancelled]
    cancelled = cancelled_in_progress(context_of(fetcher.queue), asked)
    for assignment in running:
        for claim in assignment.claims if cancelled else ():
            if claim.id in cancelled:
                note_cancelled(claim)
                assignment.cancelled.add(claim.id)
                logger.info("%s: message %d was cancelled; its handler is told to stop", fetcher.queue.name, claim.id)
        if len(assignment.cancelled) == len(assignment.claims) and not assignment.interrupted:
            fetcher.pool.interrupt(assignment)  # again at the next look, if the call was about to begin
