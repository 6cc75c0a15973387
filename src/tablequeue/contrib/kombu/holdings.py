"""The messages that were delivered and not answered yet, and the thread that completes them or extends their leases."""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from threading import Condition, Thread
from time import monotonic
from typing import NamedTuple

from tablequeue.errors import TRANSIENT, LeaseLost, TablequeueError
from tablequeue.model.message import Claim
from tablequeue.model.pacing import backoff
from tablequeue.queue import Queue

logger = logging.getLogger("tablequeue.contrib.kombu")

# How often leases are extended while one lasts: two attempts may fail.
EXTENSIONS_PER_LEASE = 3
# Seconds between two notes that the consumers of transient queues are alive.
ALIVE_EVERY = 20.0
# Seconds that `close` waits for messages to be completed.
PATIENCE = 5.0


class Held(NamedTuple):
    queue: Queue
    claim: Claim

    @property
    def tag(self) -> str:
        """The delivery tag."""
        return f"{self.claim.id}-{self.claim.token}"


class Holdings:
    """The messages that one connection holds, by delivery tags. Any thread may call; a forked child holds nothing.

    lease     seconds of each claim.
    alive     notes that the consumers of transient queues are alive. Returns whether there are any.

    The thread ends when there is nothing to do, and begins again when there is.
    """

    def __init__(self, lease: float, alive: Callable[[], bool]) -> None:
        self._lease = lease
        self._alive = alive
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._state = Condition()
        self._held: dict[str, Held] = {}
        self._done: list[Held] = []
        self._finishing = False
        self._closed = False
        self._thread: Thread | None = None

    @property
    def inherited(self) -> bool:
        """Whether this process is a fork of the process that holds the messages."""
        return os.getpid() != self._pid

    def add(self, queue: Queue, claims: Iterable[Claim]) -> list[str]:
        """Hold claims until they are answered. Return their delivery tags."""
        self.start()
        held = [Held(queue, claim) for claim in claims]
        with self._state:
            self._held.update({one.tag: one for one in held})
        return [one.tag for one in held]

    def take(self, tag: str) -> Held | None:
        """Stop holding a message. None if it was answered before, or its lease is lost."""
        if self.inherited:
            return None
        with self._state:
            return self._held.pop(tag, None)

    def complete(self, tag: str) -> bool:
        """Complete a message soon, in the thread: with others that are answered meanwhile. False if it is not held."""
        held = self.take(tag)
        if held is not None:
            with self._state:
                self._done.append(held)
                self._state.notify_all()
            self.start()
        return held is not None

    def holds(self, tag: str) -> bool:
        """Whether a message is held: it is not answered, and its lease is not lost."""
        return not self.inherited and tag in self._held

    def release(self, tags: Iterable[str]) -> None:
        """Give messages back: no attempt counts. If the database is away, they come back when their leases end."""
        _each_queue([held for tag in tags if (held := self.take(tag)) is not None], _released)

    def start(self) -> None:
        """Start the thread, unless it runs."""
        if self.inherited:
            self._begin()
        with self._state:
            self._closed = False
            if self._thread is None:
                self._thread = Thread(target=self._run, name="tablequeue leases of kombu", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread after answered messages are completed. Messages still held come back when their leases end."""
        if self.inherited:
            return
        with self._state:
            self._closed = True
            self._state.notify_all()
            self._state.wait_for(lambda: not (self._done or self._finishing), PATIENCE)
            self._held.clear()

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = min(self._lease / EXTENSIONS_PER_LEASE, ALIVE_EVERY)
        extend_at = alive_at = monotonic() + pause
        failures = 0
        while True:
            with self._state:
                self._state.wait_for(
                    lambda: self._done or self._closed, max(0.0, min(extend_at, alive_at) - monotonic())
                )
                done, self._done = self._done, []
                self._finishing = bool(done)
                if self._closed and not done:
                    self._thread = None
                    return
            failed = _each_queue(done, _completed)
            failures = failures + 1 if failed else 0
            with self._state:
                self._done[:0] = failed
                self._finishing = False
                self._state.notify_all()
                if failed:
                    self._state.wait_for(lambda: self._closed, backoff(failures))
                held = [*self._held.values()]
            if monotonic() >= extend_at:
                extend_at = monotonic() + pause
                self._forget(_each_queue(held, self._not_extended))
            if monotonic() >= alive_at:
                alive_at = monotonic() + ALIVE_EVERY
                if self._ends():
                    return

    def _ends(self) -> bool:
        """Note that the consumers are alive. Return whether there are none, and nothing else to do."""
        try:
            consuming = self._alive()
        except TablequeueError as error:
            logger.warning("%s", error)
            return False
        with self._state:
            if consuming or self._held or self._done:
                return False
            self._thread = None
            return True

    def _not_extended(self, queue: Queue, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Extend leases. Return the claims that are lost."""
        try:
            queue.extend_many(claims, self._lease)
        except LeaseLost as error:
            return [claim for claim in claims if claim.id in error.ids]
        except TablequeueError as error:
            logger.warning("%s: leases were not extended: %s", queue.name, error)
        return []

    def _forget(self, lost: Sequence[Held]) -> None:
        for held in lost:
            if self.take(held.tag) is not None:
                logger.error("%s: the lease of message %d is lost. %s", held.queue.name, held.claim.id, _AGAIN)


_AGAIN = "It is delivered again."


def _each_queue(held: Sequence[Held], call: Callable[[Queue, Sequence[Claim]], Sequence[Claim]]) -> list[Held]:
    """Make a call for the claims of each queue. Return the claims that the calls return."""
    by_queue: dict[Queue, list[Claim]] = defaultdict(list)
    for queue, claim in held:
        by_queue[queue].append(claim)
    return [Held(queue, claim) for queue, claims in by_queue.items() for claim in call(queue, claims)]


def _completed(queue: Queue, claims: Sequence[Claim]) -> Sequence[Claim]:
    """Complete messages. Return the ones to try again."""
    try:
        queue.complete_many(claims)
    except LeaseLost as error:
        logger.error("%s: the leases of messages %s are lost. %s", queue.name, error.ids, _AGAIN)
    except TRANSIENT as error:
        logger.warning("%s: %s Trying again.", queue.name, error)
        return claims
    except TablequeueError as error:  # the queue was deleted
        logger.warning("%s: %s", queue.name, error)
    return []


def _released(queue: Queue, claims: Sequence[Claim]) -> Sequence[Claim]:
    try:
        queue.release_many(claims)
    except LeaseLost:
        pass  # they are delivered again anyway
    except TablequeueError as error:
        logger.warning("%s: messages come back when their leases end: %s", queue.name, error)
    return []
