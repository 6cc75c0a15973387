"""When a worker that drains its queues is done: nothing is ready in any of them, and nothing is under way."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tablequeue.worker.fetcher import Fetcher


class Drain:
    """Of several queues, for the handlers of one may push to another.

    It is over when each queue was found empty by a pop that began after all that had been popped was finished.
    """

    def __init__(self) -> None:
        self.over = False
        self.fetchers: list[Fetcher] = []
        self._lock = Lock()
        self._finished = 0
        """How many assignments were finished so far."""
        self._empty: dict[Fetcher, int] = {}
        """The queues that were found empty, and how many assignments had been finished before that pop."""

    def before_a_pop(self, fetcher: Fetcher) -> int:
        """What `found_nothing` is to be told if the pop finds nothing. Until then it is not over."""
        with self._lock:
            self._empty.pop(fetcher, None)
            return self._finished

    def found_nothing(self, fetcher: Fetcher, finished: int) -> None:
        with self._lock:
            self._empty[fetcher] = finished
            empty = all(self._empty.get(one) == self._finished for one in self.fetchers)
            self.over = self.over or (empty and not self._held())
        if self.over:
            self._wake()

    def before_a_finish(self) -> None:
        """A handler has ended and its messages are finished, but still held by their fetcher."""
        with self._lock:
            self._finished += 1

    def finished(self) -> None:
        """They are not held any more."""
        if not self._held():
            self._wake()

    # -- private -----------------------------------------------------------------------------------------------------

    def _held(self) -> bool:
        return any(fetcher.holds() for fetcher in self.fetchers)

    def _wake(self) -> None:
        for fetcher in self.fetchers:
            fetcher.wake()
