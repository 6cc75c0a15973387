"""Silence: what a call of ours does while no answer of the server comes.

A server may be suspended, and its machine may vanish: neither closes the connection. But a statement may take long, so
the time of a call decides nothing. A call that has no answer yet asks now and then whether the server answers anybody:
it opens another connection. The operating system asks the other machine in the same way.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from threading import Lock, Thread
from time import monotonic

# Seconds of silence before the first question, and the maximum to which the pauses between them double.
PAUSES = (2.0, 30.0)
# Seconds that a question may take.
PATIENCE = 10.0
# Seconds for which nothing may come, neither to the call nor to its questions.
LIMIT = 60.0
SILENT = f"the server has answered nothing for {LIMIT:g} s, on a new connection neither"
# What the operating system does for a connection of ours, unless it does so earlier: after 30 s without a word it asks
# the other machine every 10 s, and it closes the connection when that has acknowledged nothing for 60 s.
PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
UNACKNOWLEDGED = 60_000


class Watch:
    """Asks for the calls of a process, one after the other, whether the server answers. `connect` opens a connection.

    A question is in a thread of its own: a connection to a server that is suspended may be opened for ever.
    """

    def __init__(self, connect: Callable[[], None]) -> None:
        self._connect = connect
        self._lock = Lock()
        self._thread: Thread | None = None

    def answers(self) -> bool:
        """Whether the server answers in time. A refusal, such as that of one connection too many, is an answer."""
        if not self._lock.acquire(timeout=PATIENCE):
            return False
        try:
            if self._thread is None or not self._thread.is_alive():  # else the question before has no answer yet
                self._thread = Thread(target=self._ask, name="tablequeue watch", daemon=True)
                self._thread.start()
                self._thread.join(PATIENCE)
            return not self._thread.is_alive()
        finally:
            self._lock.release()

    def _ask(self) -> None:
        try:
            self._connect()
        except Exception:
            return  # an answer, which the call itself does not need


class Silence:
    """The silence in which a call waits. `pause` is how long to wait before the next question."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._heard_at = monotonic()
        self.pause = PAUSES[0]

    def question(self) -> None:
        """Ask whether the server answers. Raise `ConnectionError` if it has not for LIMIT seconds."""
        if self._watch.answers():
            self._heard_at = monotonic()
        elif monotonic() - self._heard_at > LIMIT:
            raise ConnectionError(SILENT)
        self.pause = min(2 * self.pause, PAUSES[1])


def watch_machine(descriptor: int) -> None:
    """Have the operating system close a connection whose other machine vanishes."""
    with socket.socket(fileno=os.dup(descriptor)) as other:
        if other.family not in (socket.AF_INET, socket.AF_INET6):
            return
        if other.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE):  # else somebody has turned it off
            for name, most in PROBES.items():
                option = getattr(socket, name, None)  # macOS has another name for one of them
                if option is not None and other.getsockopt(socket.IPPROTO_TCP, option) > most:
                    other.setsockopt(socket.IPPROTO_TCP, option, most)
        option = getattr(socket, "TCP_USER_TIMEOUT", None)
        if option is not None and not other.getsockopt(socket.IPPROTO_TCP, option):
            other.setsockopt(socket.IPPROTO_TCP, option, UNACKNOWLEDGED)
