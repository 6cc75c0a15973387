"""When a worker that drains its queues is done: every queue is empty, and no message is being handled."""

from __future__ import annotations

from threading import Lock
from typing import Protocol


class Fetching(Protocol):
    """The methods of a queue's fetcher that a drain needs."""

    def has_assignments(self) -> bool: ...

    def wake(self) -> None: ...


class Drain:
    """The state of a drain, for all queues together: the handlers of one queue may push to another.

    It is done when each queue was found empty by a pop that began after all popped messages were finished.
    """

    def __init__(self) -> None:
        self.done = False
        self.fetchers: list[Fetching] = []
        self._lock = Lock()
        self._finished = 0
        """How many times assignments were finished so far."""
        self._empty: dict[Fetching, int] = {}
        """Each queue that was found empty, with the number of times that assignments were finished before that pop."""

    def before_pop(self, fetcher: Fetching) -> int:
        """Return the number for `found_empty`, in case the pop finds nothing. The drain is not done before that."""
        with self._lock:
            self._empty.pop(fetcher, None)
            return self._finished

    def found_empty(self, fetcher: Fetching, finished: int) -> None:
        with self._lock:
            self._empty[fetcher] = finished
            empty = all(self._empty.get(one) == self._finished for one in self.fetchers)
            self.done = self.done or (empty and not self._any_held())
        if self.done:
            self._wake()

    def before_discard(self) -> None:
        """Note that assignments are finished. Their fetcher still holds them."""
        with self._lock:
            self._finished += 1

    def after_discard(self) -> None:
        """Let all queues be looked at again if this was the last assignment that any fetcher held."""
        if not self._any_held():
            self._wake()

    # -- private -----------------------------------------------------------------------------------------------------

    def _any_held(self) -> bool:
        return any(fetcher.has_assignments() for fetcher in self.fetchers)

    def _wake(self) -> None:
        for fetcher in self.fetchers:
            fetcher.wake()
