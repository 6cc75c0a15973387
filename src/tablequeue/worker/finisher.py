"""Finishes what was handled, in one thread for all queues: while one call is under way, the next batch gathers.

So nothing waits for others to come, and the batches grow with the load by themselves.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import Any, NamedTuple

from tablequeue.errors import LeaseLost, TablequeueError
from tablequeue.message import Claim
from tablequeue.operations.desk import seconds
from tablequeue.worker.crew import Piece
from tablequeue.worker.line import PASSING, Line, pause_after
from tablequeue.worker.outcome import DeadLetter, Done, Outcome, Retry, Snooze

logger = logging.getLogger("tablequeue.worker")


class Handled(NamedTuple):
    line: Line
    piece: Piece
    outcomes: Sequence[Outcome]


class Finisher:
    """Tells the database what became of the messages.

    While the database is away it tries again, until `close` gives up. A message that cannot be finished comes back
    when its lease ends.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """How many messages of this run became what so far: completed, or the state that `fail` gave them."""
        self._handled: SimpleQueue[Handled | None] = SimpleQueue()
        self._give_up_at = float("inf")
        self._thread = Thread(target=self._run, name="finisher of the worker", daemon=True)
        self._thread.start()

    def put(self, line: Line, piece: Piece, outcomes: Sequence[Outcome]) -> None:
        self._handled.put(Handled(line, piece, outcomes))

    def close(self, patience: float) -> None:
        """Finish what was put, for up to `patience` seconds."""
        self._give_up_at = monotonic() + patience
        self._handled.put(None)
        self._thread.join(patience)

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        ending = False
        while not ending:
            batch: list[Handled] = []
            one = self._handled.get()
            try:
                while one is not None:
                    batch.append(one)
                    one = self._handled.get_nowait()
                ending = True
            except Empty:
                pass  # that is all for now
            self._finish(batch)

    def _finish(self, batch: list[Handled]) -> None:
        by_line: dict[Line, list[Handled]] = defaultdict(list)
        for handled in batch:
            by_line[handled.line].append(handled)
        for line, several in by_line.items():
            ends = [
                (claim, outcome, piece)
                for _, piece, outcomes in several
                for claim, outcome in zip(piece.claims, outcomes, strict=True)
            ]
            if done := [claim for claim, outcome, _ in ends if isinstance(outcome, Done)]:
                self._try(line, partial(self._complete, line, done))
            for claim, outcome, piece in ends:
                if type(outcome) in ACTS:
                    self._try(line, partial(self._act, line, claim, outcome, piece))
            for handled in several:
                line.finished(handled.piece)

    def _complete(self, line: Line, claims: list[Claim]) -> None:
        lost = 0
        try:
            line.queue.complete_many(claims)
        except LeaseLost as error:
            lost = len(error.ids)
            raise
        finally:
            self.counts["completed"] += len(claims) - lost

    def _act(self, line: Line, claim: Claim, outcome: Any, piece: Piece) -> None:
        state = ACTS[type(outcome)](claim, outcome, piece)
        self.counts[state] += 1
        if isinstance(outcome, (Retry, DeadLetter)):
            error = outcome.error
            words = error.strip().rpartition("\n")[2] if isinstance(error, str) else f"{type(error).__name__}: {error}"
            fields = {"queue": line.queue.name, "message_id": claim.id, "state": state, "attempts": claim.attempts}
            logger.warning("%s: message %d failed and is %s: %s", line.queue.name, claim.id, state, words, extra=fields)

    def _try(self, line: Line, call: Callable[[], None]) -> None:
        failures = 0
        while True:
            try:
                call()
                return
            except PASSING as error:
                failures += 1
                pause = pause_after(failures)
                if monotonic() + pause > self._give_up_at:
                    logger.error("%s: %s Its messages come back when their leases end.", line.queue.name, error)
                    return
                sleep(pause)
            except TablequeueError as error:
                # The lease was lost, or the queue is gone: somebody else has the message, or nobody can.
                logger.error("%s: %s", line.queue.name, error)
                return
            except Exception:
                logger.exception("%s: a message was not finished, and comes back when its lease ends", line.queue.name)
                return


def _retry(claim: Claim, outcome: Retry, piece: Piece) -> str:
    return claim.fail(outcome.error, retry_in=None if outcome.after is None else seconds(outcome.after, "after"))


def _bury(claim: Claim, outcome: DeadLetter, piece: Piece) -> str:
    return claim.fail(outcome.error, retry=False)


def _snooze(claim: Claim, outcome: Snooze, piece: Piece) -> str:
    if claim.lease_until is None:
        return claim.fail("snoozed, which a message delivered at most once cannot be")
    until = outcome.until
    if isinstance(until, datetime):
        # By the database's clock: that of the pop, and what has passed since by ours.
        passed = timedelta(seconds=monotonic() - piece.popped)
        until = max(until - claim.popped_at - passed, timedelta(0))
    claim.release(delay=seconds(until, "until"))
    return "snoozed"


# What is done for each message by itself; Done is completed in one call, and Finished is finished.
ACTS: dict[type[Outcome], Callable[[Claim, Any, Piece], str]] = {Retry: _retry, DeadLetter: _bury, Snooze: _snooze}
