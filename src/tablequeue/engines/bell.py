"""Wake-ups: one thread a process hears what the engine hears, and tells those who wait in the process.

An engine that can be told of pushes supplies a Wire. Where there is none, and whenever it is cut, those who wait look
again by themselves (operations/wait.py): a wake-up that is lost costs time, never a message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from threading import Lock, Thread
from typing import ClassVar

from tablequeue.engines.base import Held, Table


class Wire(ABC):
    """What an engine hears of its queues, on a connection of its own. `hear` runs in one thread, the rest in any."""

    busy_after: ClassVar[float] = 0.1
    """Seconds of one message after the other from which nobody counts as waiting: who is awake need not be woken."""
    exact: ClassVar[bool] = True
    """Whether who is woken pops at once: something was pushed to that queue. Else anything may have happened."""

    def __init__(self, held: Held) -> None:
        self.held = held

    @classmethod
    def string(cls, held: Held) -> Wire:
        """The wire on that connection; another one where this one would hear nothing."""
        return cls(held)

    @abstractmethod
    def attend(self, table: Table) -> None:
        """Somebody begins to wait at the queue: from the return on, pushes that have not committed yet are heard."""

    @abstractmethod
    def leave(self, table: Table) -> None:
        """Nobody waits at the queue any more: its pushes need not be heard."""

    @abstractmethod
    def hear(self) -> Collection[str] | None:
        """Block until something was pushed; to the queues of which tables it may have been. None: the wire was cut."""

    @abstractmethod
    def cut(self) -> None:
        """`hear` returns None, now or when it is called."""


class Bell:
    """Those who wait in this process, and the wire that wakes them."""

    def __init__(self, wire: type[Wire], hold: Callable[[], Held], discard: Callable[[Held], None]) -> None:
        self._kind = wire
        self._hold = hold
        self._discard = discard
        self._lock = Lock()
        self._wire: Wire | None = None
        self._thread: Thread | None = None
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    @property
    def busy_after(self) -> float:
        return (self._wire or self._kind).busy_after

    @property
    def exact(self) -> bool:
        return (self._wire or self._kind).exact

    def attend(self, table: Table, wake: Callable[[], None]) -> bool:
        """From the return of this on, `wake` is called, in another thread, when something was pushed to the queue.

        False if that cannot be: the connection was refused, or broke. Then it is for the caller to look again.
        """
        with self._lock:
            try:
                if self._wire is None:
                    self._wire = self._kind.string(self._hold())
                    self._thread = Thread(target=self._hear, args=(self._wire,), name="tablequeue bell", daemon=True)
                    self._thread.start()
                waiting = self._waiting.setdefault(table.table_name, [])
                if wake not in waiting:
                    self._wire.attend(table)
                    waiting.append(wake)
            except Exception:
                self._cut()
                return False
            return True

    def leave(self, table: Table, wake: Callable[[], None]) -> None:
        with self._lock:
            waiting = self._waiting.get(table.table_name, [])
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
