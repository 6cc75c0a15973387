"""Waiting for results: until a result is stored, or the pause between two looks is over."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from threading import Event, Lock
from time import monotonic, sleep

from tablequeue.contrib.task_results import CHANNELS, Store, channel
from tablequeue.errors import TRANSIENT

logger = logging.getLogger("tablequeue.contrib.celery")

# Seconds between two looks: the first pause, and the longest, up to which it doubles while nothing comes. If the
# database notifies, the looks are for lost notifications: see engines/notifier.py.
PAUSES = (0.01, 0.5)
PAUSES_WITH_NOTIFIER = (0.1, 10.0)
# A look is followed by a rest of this many times its length, because each result may cause a look at all others.
RESTS = 3


class Waiting:
    """The keys of the results for which a process waits. `wait` and `look` are called by one thread at a time.

    The others may be called by any thread, and `discard` also by the garbage collector: it takes no lock.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._event = Event()
        self._lock = Lock()
        self._seen: list[dict[str, bytes | None]] = [{} for _ in range(CHANNELS)]
        """The keys of each channel, each with the result found last."""
        self._new: set[str] = set()
        """The keys that the next look reads in any case."""
        self._notified = [False] * CHANNELS
        self._wakes = [partial(self._wake, number) for number in range(CHANNELS)]
        self._attended: set[int] = set()
        self._pause = 0.0
        self._next_look = self._rested = 0.0

    def _wake(self, number: int) -> None:
        """The function that the notifier calls, in its thread."""
        self._notified[number] = True
        self._event.set()

    def add(self, key: str) -> None:
        seen = self._seen[channel(key)]
        with self._lock:
            if key not in seen:
                seen[key] = None
                self._new.add(key)
        self._event.set()

    def renew(self, keys: Iterable[str]) -> None:
        """Let the next look read all keys, also keys that were added before a fork."""
        with self._lock:
            for key in keys:
                self._seen[channel(key)].setdefault(key, None)
                self._new.add(key)
        self._event.set()

    @property
    def has_new(self) -> bool:
        return bool(self._new)

    def discard(self, key: str) -> None:
        self._seen[channel(key)].pop(key, None)

    def end_wait(self) -> None:
        """End the wait of another thread: its result may have been found."""
        self._event.set()

    def wait(self, seconds: float) -> list[bytes]:
        """Wait for a change, these seconds at the most. Return the results that are new or have changed."""
        end = monotonic() + seconds
        if not self._new:
            woken = self._event.wait(max(0.0, min(end, self._next_look) - monotonic()))
            if not woken and monotonic() < self._next_look:
                return []
        if (rest := min(end, self._rested) - monotonic()) > 0 and not self._new:
            sleep(rest)
        return self.look()

    def look(self) -> list[bytes]:
        """Look at the results that are new here, or were notified, or at all if the pause is over."""
        self._event.clear()
        notified = {number for number in range(CHANNELS) if self._notified[number]}
        for number in notified:
            self._notified[number] = False  # first: it may be set again from now on
        with self._lock:
            new, self._new = self._new, set()
        listening = self._attend()  # before the look: the notifier reports a result after it
        began = monotonic()
        overdue = began >= self._next_look
        called = self._used() if overdue else notified
        keys = [*new.union(*([*self._seen[number]] for number in called))]
        try:
            found = self._store.read(keys) if keys else {}
        except TRANSIENT as error:
            logger.warning("%s Looking for results again in %.1f s.", error, PAUSES[1])
            self._next_look = monotonic() + PAUSES[1]
            return []
        changed = {key: body for key, body in found.items() if self._seen[channel(key)].get(key, body) != body}
        for key, body in changed.items():
            self._seen[channel(key)][key] = body
        now = monotonic()
        self._rested = now + RESTS * (now - began)
        shortest, longest = PAUSES_WITH_NOTIFIER if listening else PAUSES
        self._pause = min(max(shortest, 2 * self._pause), longest) if overdue and not changed else shortest
        self._next_look = now + self._pause
        return [*changed.values()]

    def tidy(self) -> None:
        """Leave the channels without waiting keys, so that a process that stores a result need not notify."""
        notifier = self._store.runner.notifier
        with self._lock:
            for number in self._attended - self._used():
                self._attended.discard(number)
                if notifier is not None:
                    notifier.leave(self._store.channels[number], self._wakes[number])

    # -- private -----------------------------------------------------------------------------------------------------

    def _used(self) -> set[int]:
        """Return the channels that have keys."""
        return {number for number in range(CHANNELS) if self._seen[number]}

    def _attend(self) -> bool:
        """Listen to the channels of all keys. Return whether the database notifies of results."""
        notifier = self._store.runner.notifier
        if notifier is None:
            return False
        listening = True
        with self._lock:
            for number in self._used():
                listening &= notifier.attend(self._store.channels[number], self._wakes[number])
                self._attended.add(number)
        return listening and notifier.tells_of_results
