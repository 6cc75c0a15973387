"""Finishes messages after their handlers, in one thread for all queues.

While one call is under way, the next batch gathers. So no message waits for others, and batches grow with the load.
Only messages of a range wait for each other, for a moment: to complete all of a range takes one statement, and to
complete a part of it several.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import NamedTuple

from tablequeue.consumer import Consumer
from tablequeue.errors import TRANSIENT, LeaseLost, TablequeueError
from tablequeue.model.message import Claim
from tablequeue.model.pacing import backoff
from tablequeue.verbs.refusals import first_of
from tablequeue.worker.ending import Ending
from tablequeue.worker.fetcher import PREFETCH_SECONDS, Fetcher
from tablequeue.worker.pool import Assignment, SharedLease

logger = logging.getLogger("tablequeue.worker")

# Seconds that a message of a range waits for the others after its handler: as much as is prefetched for a consumer.
GATHERING = 2 * PREFETCH_SECONDS
# The error of an attempt after its lease has expired, as a sweep writes it.
EXPIRED = "lease expired"
_LOST = (
    "%s: %d messages (%s) were not finished: their leases had expired, and they will be delivered again; or the "
    "handler had finished them itself."
)


class Ended(NamedTuple):
    """An assignment after its handler has ended, or which was given back."""

    fetcher: Fetcher
    assignment: Assignment
    endings: Sequence[Ending]


class Completer:
    """Completes, releases and fails messages, and counts them.

    While the database is away it tries again, until the time-out of `close`. A message that cannot be finished comes
    back when its lease expires.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """The number of messages of this run by outcome. Each is counted once, as soon as its outcome is certain."""
        self._ended: SimpleQueue[Ended | None] = SimpleQueue()
        self._gathered = Gathered()
        self._deadline = float("inf")
        self.thread = Thread(target=self._run, name="completer of the worker", daemon=True)
        self.thread.start()

    def put(self, fetcher: Fetcher, assignment: Assignment, endings: Sequence[Ending]) -> None:
        self._ended.put(Ended(fetcher, assignment, endings))

    def close(self, timeout: float) -> None:
        """Finish the queued assignments, for up to `timeout` seconds."""
        self._deadline = monotonic() + timeout
        self._ended.put(None)
        self.thread.join(timeout)

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        closing = False
        while not closing:
            batch: list[Ended] = []
            try:
                one = self._ended.get(timeout=self._gathered.timeout())
                while one is not None:
                    batch.append(one)
                    one = self._ended.get_nowait()
                closing = True
            except Empty:
                pass  # the batch is complete
            self._finish(self._gathered.whole(batch, closing))

    def _finish(self, batch: Sequence[Ended]) -> None:
        by_fetcher: dict[Fetcher, list[Ended]] = defaultdict(list)
        for ended in batch:
            by_fetcher[ended.fetcher].append(ended)
        for fetcher, several in by_fetcher.items():
            for call in calls(ending for ended in several for ending in ended.endings):
                self._call_until_answered(fetcher.queue, call)
            fetcher.discard([ended.assignment for ended in several])

    def _call_until_answered(self, queue: Consumer, call: list[Ending]) -> None:
        """Make the call, again after each transient error, and count the endings that took effect."""
        failures = 0
        while True:
            try:
                effective = effective_of(queue, call, is_retry=failures > 0)
                for ending in effective:
                    if ending.becomes:
                        self.counts[ending.becomes] += len(ending.claims)
                for ending in effective if call[0].verb == "fail" else ():
                    log_failure(queue, ending)
                return
            except TRANSIENT as error:
                failures += 1
                pause = backoff(failures)
                if monotonic() + pause > self._deadline:
                    logger.error("%s: %s Its messages come back when their leases expire.", queue.name, error)
                    return
                sleep(pause)
            except TablequeueError as error:
                # The queue was dropped, or the database refuses the call: the messages come back if they can.
                logger.error("%s: %s", queue.name, error)
                return
            except Exception:
                logger.exception("%s: a message was not finished, and comes back when its lease expires", queue.name)
                return


class Gathered:
    """Assignments that wait for other messages of their ranges. Only the thread of the completer uses it."""

    def __init__(self) -> None:
        self._by_range: dict[SharedLease, list[Ended]] = {}
        self._since: dict[SharedLease, float] = {}
        """When the first assignment of each range ended, the longest ago first."""

    def timeout(self) -> float | None:
        """Return the seconds until an assignment has waited long enough; None if none waits."""
        first = next(iter(self._since.values()), None)
        return None if first is None else max(0.0, first + GATHERING - monotonic())

    def whole(self, batch: Sequence[Ended], closing: bool) -> Sequence[Ended]:
        """Add a batch. Return the assignments to finish now: all without a range, or that need not wait any more."""
        now = monotonic()
        ready: list[Ended] = []
        for ended in batch:
            of = ended.assignment.range
            if of is None:
                ready.append(ended)
                continue
            of.open -= len(ended.assignment.claims)
            self._by_range.setdefault(of, []).append(ended)
            self._since.setdefault(of, now)
            if not of.open:
                ready += self._leave(of)
        for of in [of for of, since in self._since.items() if closing or now >= since + GATHERING]:
            ready += self._leave(of)
        return ready

    def _leave(self, of: SharedLease) -> list[Ended]:
        del self._since[of]
        return self._by_range.pop(of)


def log_failure(queue: Consumer, ending: Ending) -> None:
    (claim,), state = ending.claims, ending.becomes
    last_line = ending.error.strip().rpartition("\n")[2]
    fields = {"queue": queue.name, "message_id": claim.id, "state": state, "attempts": claim.attempt}
    if state == "cancelled":
        logger.info("%s: message %d was cancelled while it was in progress", queue.name, claim.id, extra=fields)
        return
    logger.warning("%s: message %d failed and is %s: %s", queue.name, claim.id, state, last_line, extra=fields)


def calls(endings: Iterable[Ending]) -> Iterable[list[Ending]]:
    """Return the endings grouped by the calls that make them: many completions in one, and failures of one error.

    No call has the same message twice, as `LeaseLost` names messages and not claims: after its lease was lost, a
    message may have been popped again.
    """
    calls: dict[tuple[object, ...], list[Ending]] = defaultdict(list)
    ids: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for number, ending in enumerate(endings):
        key: tuple[object, ...] = (ending.verb, ending.delay, ending.error, ending.final)
        own = {claim.id for claim in ending.claims}
        if not ids[key].isdisjoint(own):
            key = (number,)
        ids[key] |= own
        calls[key].append(ending)
    return calls.values()


def effective_of(queue: Consumer, call: Sequence[Ending], is_retry: bool) -> Sequence[Ending]:
    """Make the call, and return its endings, with the claims for which they took effect.

    With `is_retry`, the same call was made before and its answer was lost: it may have taken effect then.
    """
    first, claims = call[0], [claim for ending in call for claim in ending.claims]
    try:
        match first.verb:
            case "complete":
                kept = queue.definition.results
                results = [ending.result for ending in call for _ in ending.claims] if kept else None
                queue.complete_many(claims, results=results)
            case "release":
                queue.release_many(claims, delay=first.delay or 0)
            case _:
                states = queue.fail_many(claims, first.error, retry_in=first.delay, retry=not first.final)
                # Each ending is of one message. A cancelled message is not retried.
                return [one._replace(becomes=state) for one, state in zip(call, states, strict=True)]
    except LeaseLost as error:
        named = set(error.ids)
        lost = {
            claim.id
            for ending in call
            for claim in ending.claims
            if claim.id in named and not (is_retry and _took_effect(queue, claim, ending.assignment))
        }
        if lost:
            logger.error(_LOST, queue.name, len(lost), first_of(sorted(lost)))
        held = [one._replace(claims=[claim for claim in one.claims if claim.id not in lost]) for one in call]
        return [one for one in held if one.claims]
    return call


def _took_effect(queue: Consumer, claim: Claim, assignment: Assignment) -> bool:
    """Whether a lost claim was ended by the call that got no answer, and not by the end of its lease."""
    message = queue.find(claim.id)
    if message is None:
        # Deleted: by us, or by another consumer after us. Nobody else could pop it while our lease lasted.
        return monotonic() < assignment.leased_at + queue.definition.lease
    return not any(
        (error.attempt, error.error) == (claim.attempt, EXPIRED) and error.at >= claim.popped_at
        for error in message.errors
    )
