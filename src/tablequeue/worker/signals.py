"""SIGTERM and SIGINT: the first one stops the worker in good order, the second one at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread, current_thread, main_thread
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds that the second signal gives to ending the processes of handlers.
LAST_WORDS = 1.0


@contextmanager
def stopping(stop: Callable[[], None], kill: Callable[[], None]) -> Iterator[None]:
    """In the main thread, which alone gets signals, they `stop` and then `kill` and exit, until the block ends.

    The exit is of the process, at once: threads that run handlers cannot be ended, and would keep it alive.
    """
    if current_thread() is not main_thread():
        yield
        return
    got: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        got.append(number)
        if len(got) == 1:
            # In a thread: the main one may have been interrupted while it holds the lock that `stop` needs.
            Thread(target=stop, daemon=True).start()
        else:
            # In a thread, too, and not for long: whatever happens, the process ends.
            killer = Thread(target=kill, daemon=True)
            killer.start()
            killer.join(LAST_WORDS)
            os._exit(128 + number)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: it was not set by Python
