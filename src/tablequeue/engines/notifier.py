"""Wake-ups: one thread of a process listens for pushes, and wakes the consumers that wait in the process.

An engine that can learn of pushes supplies a Listener. Without one, and whenever it is closed, consumers poll
(verbs/wait.py): a lost wake-up costs time, never a message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from threading import Lock, Thread
from typing import ClassVar

from tablequeue.engines.connection import RawConnection
from tablequeue.engines.table import Table


class Listener(ABC):
    """Receives notifications of pushes, on a connection of its own.

    `listen` runs in one thread, the other methods in any.
    """

    busy_after: ClassVar[float] = 0.1
    """Seconds of continuous work after which a consumer no longer counts as waiting, so that it is not woken."""
    exact: ClassVar[bool] = True
    """Whether a wake-up means that a message was pushed to that queue, so that the consumer pops at once."""

    tells_of_results: ClassVar[bool] = True
    """Whether it reports results too; if not, those who wait for them look from time to time."""

    def __init__(self, connection: RawConnection) -> None:
        self.connection = connection

    @classmethod
    def open(cls, connection: RawConnection) -> Listener:
        """Return the listener on that connection. It is of another class where this one would receive nothing."""
        return cls(connection)

    @abstractmethod
    def attend(self, table: Table) -> None:
        """Report pushes to the queue, because a consumer waits. Every push that commits after the return counts."""

    @abstractmethod
    def leave(self, table: Table) -> None:
        """Stop reporting pushes to the queue, because no consumer waits there any more."""

    @abstractmethod
    def listen(self) -> Collection[str] | None:
        """Block until a message was pushed. Return the tables of the queues concerned; None after `close`."""

    @abstractmethod
    def close(self) -> None:
        """Make `listen` return None, now or at its next call."""


class Notifier:
    """The consumers that wait in this process, and the listener that wakes them."""

    def __init__(
        self, listener: type[Listener], connect: Callable[[], RawConnection], discard: Callable[[RawConnection], None]
    ) -> None:
        self._kind = listener
        self._connect = connect
        self._discard = discard
        self._lock = Lock()
        self._listener: Listener | None = None
        self._thread: Thread | None = None
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    @property
    def busy_after(self) -> float:
        return (self._listener or self._kind).busy_after

    @property
    def exact(self) -> bool:
        return (self._listener or self._kind).exact

    @property
    def tells_of_results(self) -> bool:
        return (self._listener or self._kind).tells_of_results

    def attend(self, table: Table, wake: Callable[[], None]) -> bool:
        """Call `wake`, in another thread, for every push to the queue from now on.

        Return False if that is impossible, because the connection was refused or broke. Then the caller must poll.
        """
        with self._lock:
            try:
                if self._listener is None:
                    self._listener = self._kind.open(self._connect())
                    self._thread = Thread(
                        target=self._listen, args=(self._listener,), name="tablequeue notifier", daemon=True
                    )
                    self._thread.start()
                waiting = self._waiting.setdefault(table.channel, [])
                if wake not in waiting:
                    self._listener.attend(table)
                    waiting.append(wake)
            except Exception:
                self._close_listener()
                return False
            return True

    def leave(self, table: Table, wake: Callable[[], None]) -> None:
        with self._lock:
            waiting = self._waiting.get(table.channel, [])
            if wake not in waiting:
                return
            waiting.remove(wake)
            try:
                if not waiting and self._listener is not None:
                    self._listener.leave(table)
            except Exception:
                self._close_listener()

    def close(self) -> None:
        """Close the listener, and wake all waiting consumers."""
        with self._lock:
            self._close_listener()
        if self._thread is not None:
            self._thread.join()

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()

    def _listen(self, listener: Listener) -> None:
        try:
            while (names := listener.listen()) is not None:
                with self._lock:
                    woken = [wake for name in names for wake in self._waiting.get(name, ())]
                for wake in woken:
                    wake()
        except Exception:
            # The connection broke, or cannot listen. The waiting consumers are woken below, and attend again.
            pass
        with self._lock:
            self._listener = None
            woken = [wake for waiting in self._waiting.values() for wake in waiting]
            self._waiting.clear()
        for wake in woken:
            wake()
        self._discard(listener.connection)
