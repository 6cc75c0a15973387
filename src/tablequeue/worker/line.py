"""One queue of a worker: pops its messages as fast as the readers take them, and keeps what they hold."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Condition
from time import monotonic

from tablequeue.errors import Conflict, ConnectionLost, Full, Locked, ReadOnly, Unreachable
from tablequeue.message import Claim
from tablequeue.queue import Queue
from tablequeue.worker.balance import GROW_AFTER, Sight
from tablequeue.worker.crew import Crew, Piece
from tablequeue.worker.handler import Handler
from tablequeue.worker.outcome import Outcome

logger = logging.getLogger("tablequeue.worker")

# Work that lies ready for each reader, in seconds of its handler: enough that it does not wait for a pop, little
# enough that nothing lies here while another process is idle. A handler slower than that has nothing lying ready.
AHEAD = 0.1
MOST_AHEAD = 100
# Refusals that pass: the database is away, full, or held by another program.
PASSING = (ConnectionLost, Unreachable, Locked, Conflict, Full, ReadOnly)
# Seconds before the next try after one of them, doubling from the first to the last.
BACKOFF = (0.1, 5.0)


class Line:
    """The messages between a queue and its readers.

    changed    called when something may have to be decided about the number of readers.
    ended      called for each piece that was handled, with what became of its messages.
    """

    def __init__(
        self,
        queue: Queue,
        handler: Handler,
        minimum: int,
        maximum: int,
        longest_pause: float | None,
        changed: Callable[[], None],
        ended: Callable[[Line, Piece, Sequence[Outcome]], None],
    ) -> None:
        self.queue = queue
        self.handler = handler
        self.minimum = minimum
        self.maximum = maximum
        self.readers = 0
        self.crew: Crew
        self._changed = changed
        self._ended = ended
        self._waiter = queue.waiter(longest_pause)
        self._state = Condition()
        self._stopping = self._abandoned = self._found_all = False
        self._pieces: set[Piece] = set()
        self._unbegun = 0
        self._unwanted: list[Claim] = []
        """Popped before the line stopped, and begun by no reader."""
        self._busy = 0
        self._pace: float | None = None
        """Seconds of the handler for one message, lately."""
        self._behind_since = self._idle_since = monotonic()
        self._prefetches = queue.definition.delivery == "at_least_once"

    # -- the pops, in a thread of the line -------------------------------------------------------------------------

    def run(self, drain: bool) -> None:
        """Pop until `stop`; or, to drain the queue, until nothing is ready and all that was popped is finished.

        Raises what the database refuses for good. A broken connection, a lock or a full disk is tried again.
        """
        failures = 0
        with self._waiter as waiter:
            while (n := self._room()) and not self._stopping:
                rest = bool(self.held())
                try:
                    if claims := self.queue.pop_many(n):
                        self._hand_out(claims, n)
                        waiter.found()
                    elif not drain:
                        self._found_nothing()
                        waiter.wait()
                    elif rest:  # the end of one may let the next of its group be ready
                        self._await_rest()
                    else:
                        return
                    failures = 0
                except PASSING as error:
                    if self._stopping:
                        return
                    failures += 1
                    pause = pause_after(failures)
                    logger.warning("%s: %s Trying again in %.1f s.", self.queue.name, error, pause)
                    with self._state:
                        self._state.wait_for(lambda: self._stopping, pause)

    def stop(self) -> None:
        """Pop no more; readers go on with what they have begun, and begin nothing."""
        with self._state:
            self._stopping = True
            self._state.notify_all()
        self._waiter.wake()
        for piece in self.crew.take_back():
            self._forget(piece)

    def give_back(self) -> None:
        """Release what no reader has begun."""
        if self._unwanted:
            self.queue._let_go(self._unwanted, SystemExit("the worker stopped before a reader began with it"))

    # -- what is seen of it ----------------------------------------------------------------------------------------

    def sight(self) -> Sight:
        """What the balance is to know."""
        now = monotonic()
        with self._state:
            return Sight(
                readers=self.readers,
                busy=self._busy,
                waiting=self._unbegun,
                behind=now - self._behind_since,
                idle=0 if self._busy >= self.readers else now - self._idle_since,
                minimum=0 if self._stopping else self.minimum,
                maximum=self.maximum,
            )

    def set_readers(self, number: int) -> None:
        """Add or retire readers."""
        with self._state:
            change, self.readers = number - self.readers, number
            if change:
                self._behind_since = self._idle_since = monotonic()
            self._state.notify_all()
        for _ in range(change):
            self.crew.add()
        for _ in range(-change):
            self.crew.retire()

    def is_quiet(self) -> bool:
        """Whether nothing is held, and no reader is there who may retire."""
        with self._state:
            return not self._pieces and self.readers == self.minimum

    def abandon(self) -> list[Piece]:
        """End the calls that run; the pieces that are held, of which no reader reports any more."""
        with self._state:
            self._abandoned = True
            held = list(self._pieces)
        self.crew.abandon()
        return held

    def held(self) -> list[Piece]:
        """The pieces whose messages are held: waiting for a reader, with one, or waiting to be finished."""
        with self._state:
            return list(self._pieces)

    def finished(self, piece: Piece) -> None:
        """The messages of a piece are not held any more."""
        with self._state:
            self._pieces.discard(piece)
            self._state.notify_all()
        if self.queue.definition.grouped:
            self._waiter.wake()  # the next one's turn may have come

    def await_finished(self, deadline: float) -> bool:
        """Wait until nothing is held; whether that is so."""
        with self._state:
            return self._state.wait_for(lambda: not self._pieces, max(0, deadline - monotonic()))

    # -- called by the readers ---------------------------------------------------------------------------------------

    def begin(self, piece: Piece) -> None:
        with self._state:
            piece.began = monotonic()
            self._unbegun -= 1
            self._busy += 1
            if self._busy >= self.readers:
                self._idle_since = piece.began
            self._state.notify_all()

    def end(self, piece: Piece, outcomes: Sequence[Outcome]) -> None:
        now = monotonic()
        with self._state:
            assert piece.began is not None, "a reader ends what it has begun"
            pace = (now - piece.began) / len(piece.claims)
            self._pace = pace if self._pace is None else 0.8 * self._pace + 0.2 * pace
            if self._busy >= self.readers:
                self._idle_since = now
            self._busy -= 1
            self._state.notify_all()
            if self._abandoned:
                return
        self._ended(self, piece, outcomes)

    # -- private -----------------------------------------------------------------------------------------------------

    def _room(self) -> int:
        """Wait until messages are wanted; how many. 0 when stopping."""
        with self._state:
            self._state.wait_for(lambda: self._stopping or self._wanted() > 0)
            return 0 if self._stopping else self._wanted()

    def _wanted(self) -> int:
        """How many messages to pop now; 0 until half of what lies ready is used up, so that pops are of many."""
        size = self.handler.batch or 1
        free = max(self.readers, 1) - self._busy
        # With all readers busy, one piece more: it tells whether there is a backlog.
        more = size if not free and self.readers < self.maximum else 0
        if self._prefetches:
            # Only after a pop that found all it wanted: one that finds too little sweeps, which the first message of
            # a quiet queue need not wait for.
            ahead = min(int(AHEAD / self._pace), MOST_AHEAD) * self.readers if self._pace and self._found_all else 0
            more = max(more, ahead)
        elif monotonic() - self._behind_since < GROW_AFTER:
            more = 0  # it would lie here, and be lost if this process died: not before a reader can be added for it
        lying, target = self._unbegun * size, free * size + more
        return target - lying if lying <= target // 2 else 0

    def _hand_out(self, claims: list[Claim], n: int) -> None:
        size = self.handler.batch or 1
        pieces = [Piece(claims[start : start + size]) for start in range(0, len(claims), size)]
        with self._state:
            if self._stopping:  # while the pop was under way
                self._unwanted += claims
                return
            self._pieces.update(pieces)
            self._unbegun += len(pieces)
            self._found_all = len(claims) == n
            if not self._found_all:
                self._behind_since = monotonic()
            for piece in pieces:
                self.crew.give(piece)
        self._changed()

    def _found_nothing(self) -> None:
        with self._state:
            self._found_all = False
            self._behind_since = monotonic()

    def _await_rest(self) -> None:
        """Wait until all is finished that was popped."""
        with self._state:
            self._state.wait_for(lambda: self._stopping or not self._pieces)

    def _forget(self, piece: Piece) -> None:
        with self._state:
            self._unbegun -= 1
            self._pieces.discard(piece)
            self._unwanted += piece.claims


def pause_after(failures: int) -> float:
    """Seconds until the next try."""
    first, last = BACKOFF
    return min(first * 2.0 ** (failures - 1), last)
