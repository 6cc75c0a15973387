"""SIGTERM and SIGINT: the first signal shuts a worker down gracefully, the second one ends the process at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread, current_thread, main_thread
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds for killing the processes of handlers after the second signal.
KILL_TIMEOUT = 1.0


@contextmanager
def stop_on_signals(stop: Callable[[], None], kill: Callable[[], None]) -> Iterator[None]:
    """Until the block ends, call `stop` at the first signal, and at the second one `kill`, then exit.

    Does nothing outside of the main thread, because only that one receives signals. The exit ends the process at once:
    threads that run handlers cannot be ended, and would keep it alive.
    """
    if current_thread() is not main_thread():
        yield
        return
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            # In a thread: the signal may have interrupted the main thread while it holds the lock that `stop` needs.
            Thread(target=stop, daemon=True).start()
        else:
            # In a thread for the same reason, and with a time-out: whatever happens, the process ends.
            killer = Thread(target=kill, daemon=True)
            killer.start()
            killer.join(KILL_TIMEOUT)
            os._exit(128 + number)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: it was not set by Python
