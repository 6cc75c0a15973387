"""Finishes what was handled, in one thread for all queues: while one call is under way, the next batch gathers.

So nothing waits for others to come, and the batches grow with the load by themselves.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import NamedTuple

from tablequeue.errors import LeaseLost, TablequeueError
from tablequeue.queue import Queue
from tablequeue.worker.ending import Ending
from tablequeue.worker.fetcher import PASSING, Fetcher, pause_after
from tablequeue.worker.pool import Assignment

logger = logging.getLogger("tablequeue.worker")

# The error of an attempt whose lease has ended, as a sweep writes it.
EXPIRED = "lease expired"
_LOST = (
    "%s: %d messages (%s) were not finished: their leases had ended, and they are to be had again; or the handler had "
    "finished them itself."
)


class Ended(NamedTuple):
    fetcher: Fetcher
    assignment: Assignment
    endings: Sequence[Ending]


class Completer:
    """Tells the database what became of the messages.

    While the database is away it tries again, until `close` gives up. A message that cannot be finished comes back
    when its lease ends.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """How many messages of this run became what so far, each counted once, when that is certain."""
        self._ended: SimpleQueue[Ended | None] = SimpleQueue()
        self._give_up_at = float("inf")
        self._thread = Thread(target=self._run, name="completer of the worker", daemon=True)
        self._thread.start()

    def put(self, fetcher: Fetcher, assignment: Assignment, endings: Iterable[Ending]) -> None:
        self._ended.put(Ended(fetcher, assignment, [*endings]))

    def close(self, patience: float) -> None:
        """Finish what was put, for up to `patience` seconds."""
        self._give_up_at = monotonic() + patience
        self._ended.put(None)
        self._thread.join(patience)

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        closing = False
        while not closing:
            batch: list[Ended] = []
            one = self._ended.get()
            try:
                while one is not None:
                    batch.append(one)
                    one = self._ended.get_nowait()
                closing = True
            except Empty:
                pass  # that is all for now
            self._finish(batch)

    def _finish(self, batch: list[Ended]) -> None:
        by_fetcher: dict[Fetcher, list[Ended]] = defaultdict(list)
        for ended in batch:
            by_fetcher[ended.fetcher].append(ended)
        for fetcher, several in by_fetcher.items():
            for call in _calls(ending for ended in several for ending in ended.endings):
                self._make(fetcher, call)
            for ended in several:
                fetcher.finished(ended.assignment)

    def _make(self, fetcher: Fetcher, call: list[Ending]) -> None:
        """Make the call until it is answered, and count what it did."""
        failures = 0
        while True:
            try:
                for ending in _effect(fetcher.queue, call, again=failures > 0):
                    self._count(fetcher.queue, ending)
                return
            except PASSING as error:
                failures += 1
                pause = pause_after(failures)
                if monotonic() + pause > self._give_up_at:
                    logger.error("%s: %s Its messages come back when their leases end.", fetcher.queue.name, error)
                    return
                sleep(pause)
            except TablequeueError as error:
                # The queue is gone, or the database does not take it: the messages come back if they can.
                logger.error("%s: %s", fetcher.queue.name, error)
                return
            except Exception:
                logger.exception(
                    "%s: a message was not finished, and comes back when its lease ends", fetcher.queue.name
                )
                return

    def _count(self, queue: Queue, ending: Ending) -> None:
        if ending.becomes:
            self.counts[ending.becomes] += 1
        if ending.verb == "fail":
            claim, state = ending.claim, ending.becomes
            words = ending.error.strip().rpartition("\n")[2]
            fields = {"queue": queue.name, "message_id": claim.id, "state": state, "attempts": claim.attempts}
            logger.warning("%s: message %d failed and is %s: %s", queue.name, claim.id, state, words, extra=fields)


def _calls(endings: Iterable[Ending]) -> Iterable[list[Ending]]:
    """The endings, by the calls that make them: completions in one, failures one by one.

    In one call a message is once, for `LeaseLost` names messages: it may have come again after its lease was lost.
    """
    calls: dict[tuple[str, float, int], dict[int, Ending]] = defaultdict(dict)
    for number, ending in enumerate(endings, 1):
        key = (ending.verb, ending.delay, number if ending.verb == "fail" else 0)
        if ending.claim.id in calls[key]:
            key = (ending.verb, ending.delay, number)
        calls[key][ending.claim.id] = ending
    return [[*call.values()] for call in calls.values()]


def _effect(queue: Queue, call: Sequence[Ending], again: bool) -> Sequence[Ending]:
    """Make the call; which of its endings took effect. `again`: after one that may have had some effect unanswered."""
    first = call[0]
    try:
        match first.verb:
            case "complete":
                queue.complete_many(ending.claim for ending in call)
            case "release":
                queue.release_many((ending.claim for ending in call), delay=first.delay)
            case _:
                queue.fail(first.claim, first.error, retry_in=first.delay, retry=not first.final)
    except LeaseLost as error:
        named = set(error.ids)
        lost = {one.claim.id for one in call if one.claim.id in named and not (again and _was_ended(queue, one))}
        if lost:
            ids = ", ".join(map(str, sorted(lost)[:5])) + (", ..." if len(lost) > 5 else "")
            logger.error(_LOST, queue.name, len(lost), ids)
        return [ending for ending in call if ending.claim.id not in lost]
    return call


def _was_ended(queue: Queue, ending: Ending) -> bool:
    """Of a claim that is not held: whether the call before, whose answer was lost, has ended it, and not its lease."""
    claim = ending.claim
    message = queue.find(claim.id)
    if message is None:
        # Deleted: by us, or by who had it after us. Nobody could have it as long as our lease lasts.
        return monotonic() < ending.assignment.held + queue.definition.lease
    return not any(
        (error.attempt, error.error) == (claim.attempts, EXPIRED) and error.at >= claim.popped_at
        for error in message.errors
    )
