"""Keeps the leases of what a worker holds: one thread, which looks at all of it a few times a lease."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event, Thread
from time import monotonic

from tablequeue.errors import LeaseLost, TablequeueError
from tablequeue.worker.crew import Piece
from tablequeue.worker.line import Line

logger = logging.getLogger("tablequeue.worker")

# A lease is extended when half of it is over, and looked at so many times in all: three tries before it is lost.
LOOKS = 8
LONGEST_PAUSE = 5.0


class Keeper:
    """Extends leases until `close`. A call that is over its time-out is not held any longer."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = [line for line in lines if line.queue.definition.delivery == "at_least_once"]
        shortest = min((line.queue.definition.lease for line in self._lines), default=float("inf"))
        self._pause = min(shortest / LOOKS, LONGEST_PAUSE)
        self._closed = Event()
        self._thread = Thread(target=self._run, name="keeper of the worker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(self._pause):
            for line in self._lines:
                for piece in line.held():
                    if self._needs_extension(line, piece):
                        self._extend(line, piece)

    @staticmethod
    def _needs_extension(line: Line, piece: Piece) -> bool:
        now, timeout = monotonic(), line.handler.timeout
        overdue = timeout is not None and piece.began is not None and now > piece.began + timeout + 1
        return now > piece.held + line.queue.definition.lease / 2 and not overdue

    @staticmethod
    def _extend(line: Line, piece: Piece) -> None:
        now = monotonic()
        for claim in list(piece.claims):
            try:
                claim.extend()
                piece.held = now
            except LeaseLost:
                # It was finished at this moment; or this process had stood still, and somebody else has the message.
                piece.held = now
            except TablequeueError as error:
                logger.warning("%s: the lease of message %d was not extended: %s", line.queue.name, claim.id, error)
