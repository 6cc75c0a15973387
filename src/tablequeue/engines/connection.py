"""A connection of our own to a database."""

from __future__ import annotations

from collections.abc import Callable
from select import POLLIN, poll
from time import monotonic
from typing import Any, TypeVar

from tablequeue.engines.silence import Watch

Cursor = Any  # a DB-API cursor: the drivers share no type
T = TypeVar("T")


class RawConnection:
    """A DB-API connection of our own, in autocommit, with its cursor. It keeps its settings until it is closed."""

    look_after = 0.001
    """Seconds after which it is looked at before it is used. A look takes some 1 µs; in constant use it is spared."""

    def __init__(self, dbapi: Any, cursor: Cursor) -> None:
        self.dbapi = dbapi
        self.cursor = cursor
        self.opened_at = self.used_at = monotonic()
        """The times, on this process's monotonic clock, of its beginning and of the end of the last call on it."""

    def watch(self, watch: Watch) -> None:
        """Ask the watch from now on while no answer comes, as in silence.py, if the driver allows that."""

    def transact(self, work: Callable[[], T]) -> T:
        """Do the work in a transaction. After an error the transaction stays open, and the caller rolls it back."""
        self.begin()
        result = work()
        self.commit()
        return result

    def begin(self) -> None:
        self.cursor.execute("begin")

    def commit(self) -> None:
        self.cursor.execute("commit")

    def rollback(self) -> None:
        self.cursor.execute("rollback")

    def is_open(self) -> bool:
        """Return whether the server has not closed the connection while it was idle.

        A server that was unplugged has closed nothing.
        """
        return True

    def close(self) -> None:
        self.dbapi.close()

    def forget(self) -> None:
        """In a forked child: close the files that would hold a lock of the parent. The connection stays open."""


def is_quiet(descriptor: int) -> bool:
    """Return whether nothing has come on an idle connection's socket.

    A server that ends a session sends an error and closes the socket, or only closes it. It sends nothing else to an
    idle session, but a notice or a changed setting: then a new connection costs little. The socket is not read, so it
    may be one with TLS. Not select(), which takes no descriptor above 1023.
    """
    look = poll()
    look.register(descriptor, POLLIN)
    return not look.poll(0)
