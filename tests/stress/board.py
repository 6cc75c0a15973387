"""A few bytes that all processes of a round share: its phase, and the queues that have enough messages."""

from __future__ import annotations

import mmap
from pathlib import Path

# The phases: act; finish what was begun, while the steady consumers empty the queues; end.
RUN, DRAIN, END = range(3)


class Board:
    """A file of bytes. It is opened by its path, so that processes that inherit nothing can read it."""

    def __init__(self, path: Path, queues: tuple[str, ...]) -> None:
        if not path.exists():
            path.write_bytes(bytes(2 + len(queues)))
        with path.open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), 0)
        self._places = {queue: 2 + number for number, queue in enumerate(queues)}

    @property
    def phase(self) -> int:
        return self._bytes[0]

    @phase.setter
    def phase(self, phase: int) -> None:
        self._bytes[0] = phase

    @property
    def quiet(self) -> bool:
        """Whether no more kills and stops will come, and the processes that were hit have ended."""
        return bool(self._bytes[1])

    @quiet.setter
    def quiet(self, quiet: bool) -> None:
        self._bytes[1] = quiet

    def full(self, queue: str) -> bool:
        """Whether no client may push to the queue at the moment."""
        return bool(self._bytes[self._places[queue]])

    def set_full(self, queue: str, full: bool) -> None:
        self._bytes[self._places[queue]] = full
