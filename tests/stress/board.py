"""A few bytes that all processes of a round share: how far it is, and which queues have enough."""

from __future__ import annotations

import mmap
from pathlib import Path

# Act; end what was begun and act no more, while the steady consumers empty the queues; end.
RUN, DRAIN, END = range(3)


class Board:
    """A file of bytes. It is opened by path, so that processes can see it that inherit nothing."""

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
        """No kills and no stops are coming any more, and whoever they befell has ended."""
        return bool(self._bytes[1])

    @quiet.setter
    def quiet(self, quiet: bool) -> None:
        self._bytes[1] = quiet

    def full(self, queue: str) -> bool:
        """Whether nobody shall push there for the moment."""
        return bool(self._bytes[self._places[queue]])

    def set_full(self, queue: str, full: bool) -> None:
        self._bytes[self._places[queue]] = full
