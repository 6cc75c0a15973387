"""Several processes of an endpoint, which accept from one socket."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any


def forked(number: int) -> int:
    """Go on in this number of processes; return the number of the process, from 0.

    This process itself does not return. It passes signals to end on to the others, and exits when all have ended. If
    one of them ends by itself, the others are ended and the status is 1, so whoever started the program starts it anew.
    If this process is killed, they end too. Nothing that a fork breaks may be open, such as a database.
    """
    children: set[int] = set()
    ending = False

    def end(*_: Any) -> None:
        nonlocal ending
        ending = True
        for child in children:
            os.kill(child, signal.SIGTERM)

    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(each, end) for each in signals]
    reader, writer = os.pipe()
    for index in range(number):
        if child := os.fork():
            children.add(child)
            continue
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
        os.close(writer)
        threading.Thread(target=_end_with, args=(reader,), daemon=True).start()
        return index
    status = 0
    while children:
        child, _ = os.wait()
        children.discard(child)
        if not ending:
            status = 1
            end()
    sys.exit(status)


def _end_with(reader: int) -> None:
    """End this process when the one that has the other end of the pipe is gone."""
    os.read(reader, 1)
    os.kill(os.getpid(), signal.SIGTERM)
