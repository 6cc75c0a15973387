"""Counters of this process: the messages that it has pushed, popped and finished, by queue.

They begin at zero with the process, and in the child of a fork. A call is counted when it has returned, also in a
caller's transaction that may be rolled back later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import Lock

Key = tuple[str, str, str]
"""The name of the counter, the queue, and the state of a failed message, else an empty text."""

# The counters, each with its help text. Prometheus knows each as `tablequeue_<name>_total`.
COUNTED: Mapping[str, str] = {
    "pushed_messages": "Messages that this process has pushed.",
    "popped_messages": "Messages that this process has popped or taken.",
    "completed_messages": "Messages that this process has completed.",
    "failed_messages": "Attempts that this process has failed, by the state that the message got: dead, ready, ...",
    "released_messages": "Messages that this process has released: their attempts do not count.",
    "lost_leases": "Messages whose lease was lost when this process wanted to finish them or to extend it.",
}


class Counters:
    """Numbers that only rise. Any thread may add and read."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def add(self, name: str, queue: str, number: int, outcome: str = "") -> None:
        if number:
            key = name, queue, outcome
            with self._lock:
                self._numbers[key] = self._numbers.get(key, 0) + number

    def read(self) -> dict[Key, int]:
        with self._lock:
            return dict(self._numbers)

    def _forget(self) -> None:
        # The lock too: another thread of the parent may hold it at the fork.
        self._lock = Lock()
        self._numbers: dict[Key, int] = {}


counters = Counters()
