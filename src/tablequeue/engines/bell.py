"""Wake-ups: one thread a process hears what the engine hears, and tells those who wait in the process.

An engine that can be told of pushes supplies a Wire. Where there is none, and whenever it is cut, those who wait look
again by themselves (operations/wait.py): a wake-up that is lost costs time, never a message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from threading import Lock, Thread

from tablequeue.engines.base import Held, Table


class Wire(ABC):
    """What an engine hears of its queues, on a connection of its own. `hear` runs in one thread, the rest in any."""

    def __init__(self, held: Held) -> None:
        self.held = held

    @abstractmethod
    def attend(self, table: Table) -> None:
        """When this has returned, every push to the queue that has not committed yet is heard."""

    @abstractmethod
    def leave(self, table: Table) -> None:
        """Pushes to the queue need not be heard any more."""

    @abstractmethod
    def hear(self) -> Collection[str] | None:
        """Block until something was pushed; to which queues it may have been. None: the wire was cut."""

    @abstractmethod
    def cut(self) -> None:
        """`hear` returns None, now or when it is called."""


class Bell:
    """Those who wait in this process, and the wire that wakes them."""

    def __init__(self, string: Callable[[], Wire], discard: Callable[[Held], None]) -> None:
        self._string = string
        self._discard = discard
        self._lock = Lock()
        self._wire: Wire | None = None
        self._thread: Thread | None = None
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def attend(self, table: Table, wake: Callable[[], None]) -> bool:
        """From the return of this on, `wake` is called, in another thread, when something was pushed to the queue.

        False if that cannot be: the connection was refused, or broke. Then it is for the caller to look again.
        """
        with self._lock:
            try:
                if self._wire is None:
                    self._wire = self._string()
                    self._thread = Thread(target=self._hear, args=(self._wire,), name="tablequeue bell", daemon=True)
                    self._thread.start()
                waiting = self._waiting.setdefault(table.name, [])
                if not waiting:
                    self._wire.attend(table)
            except Exception:
                self._cut()
                return False
            if wake not in waiting:
                waiting.append(wake)
            return True

    def leave(self, table: Table, wake: Callable[[], None]) -> None:
        with self._lock:
            waiting = self._waiting.get(table.name, [])
            if wake not in waiting:
                return
            waiting.remove(wake)
            try:
                if not waiting and self._wire is not None:
                    self._wire.leave(table)
            except Exception:
                self._cut()

    def close(self) -> None:
        """Cut the wire; those who wait are woken."""
        with self._lock:
            self._cut()
        if self._thread is not None:
            self._thread.join()

    def _cut(self) -> None:
        if self._wire is not None:
            self._wire.cut()

    def _hear(self, wire: Wire) -> None:
        try:
            while (names := wire.hear()) is not None:
                with self._lock:
                    rung = [wake for name in names for wake in self._waiting.get(name, ())]
                for wake in rung:
                    wake()
        except Exception:
            # The connection broke, or was never good for this. Those who wait find out when they next attend.
            pass
        with self._lock:
            self._wire = None
            rung = [wake for waiting in self._waiting.values() for wake in waiting]
            self._waiting.clear()
        for wake in rung:
            wake()
        self._discard(wire.held)
