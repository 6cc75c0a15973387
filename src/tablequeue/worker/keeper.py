"""Keeps the leases of what a worker holds: one thread, which looks at all of it a few times a lease."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from threading import Event, Thread
from time import monotonic

from tablequeue.errors import LeaseLost
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
        self._waiting: set[Piece] = set()
        """Those that a thread of their own extends at this moment."""
        self._thread = Thread(target=self._run, name="keeper of the worker", daemon=True)
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closed.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._closed.wait(self._pause):
            for line in self._lines:
                for piece in line.held():
                    if self._needs_extension(line, piece):
                        self._extend_beside(line, piece) if piece.runs else self._extend(line, piece)

    @staticmethod
    def _needs_extension(line: Line, piece: Piece) -> bool:
        now, timeout = monotonic(), line.handler.timeout
        overdue = timeout is not None and piece.runs and now > (piece.began or now) + timeout + 1
        return now > piece.held + line.queue.definition.lease / 2 and not overdue

    def _extend_beside(self, line: Line, piece: Piece) -> None:
        """In a thread: the handler may have its messages locked, in a transaction of its own, for as long as it runs.

        The leases of the others do not wait for that.
        """
        if piece not in self._waiting:
            self._waiting.add(piece)
            Thread(target=self._extend, args=(line, piece), name="keeper of a call", daemon=True).start()

    def _extend(self, line: Line, piece: Piece) -> None:
        now, extended = monotonic(), False
        try:
            for claim in [claim for claim in piece.claims if claim.id not in piece.lost]:
                try:
                    claim.extend()
                    extended = True
                except LeaseLost:
                    # It was finished now; or this process had stood still, and somebody else has the message.
                    piece.lost.add(claim.id)
            if extended:
                piece.held = now
        except Exception as error:  # all are tried again at the next look
            logger.warning("%s: the lease of message %d was not extended: %s", line.queue.name, claim.id, error)
        finally:
            self._waiting.discard(piece)
