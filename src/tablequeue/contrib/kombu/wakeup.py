"""Ends a wait: a pipe, so that an event loop can wait for it beside other pipes."""

from __future__ import annotations

import os
import select

LONGEST = 3600.0


class Wakeup:
    """Any thread may call `set`."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for end in (self._read, self._write):
            os.set_blocking(end, False)

    def __del__(self) -> None:
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        return self._read

    def set(self) -> None:
        try:
            os.write(self._write, b"x")
        except BlockingIOError:
            pass  # it is set often enough

    def clear(self) -> None:
        try:
            os.read(self._read, 65536)
        except BlockingIOError:
            pass  # it was not set

    def wait(self, seconds: float) -> None:
        """Wait until it is set, or for these seconds."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        poll.poll(min(seconds, LONGEST) * 1000)
