"""PostgreSQL's listener: LISTEN, and an advisory lock that tells a push whether consumers wait.

NOTIFY takes a lock of the whole cluster until its transaction has committed, so that commits with notifications run one
after the other. A push therefore checks first whether a consumer waits: waiting consumers hold a shared lock. The push
tries to take that lock exclusively, and gives it back at once. It notifies only if the lock was refused. This needs no
table, and so no dead rows and no heartbeat, and the lock ends with its session.

If several pushes of our own commit at the same moment, only one of them notifies. It holds a second lock until its
commit, and a push that does not get this lock does not notify. The messages of such a push may be committed just after
the woken consumer looked for them. Then the next pop finds them, or a look after the shortest pause
(verbs/wait.py). The second lock is a different one every 10 ms.

A push in a caller's transaction does not notify in that transaction, which may last long or be prepared. It is notified
from another connection instead. The push holds a third lock until the end of its transaction, by which the woken
consumer sees that a push is under way.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from select import POLLIN, poll
from threading import Lock

import psycopg

from tablequeue.engines.connection import RawConnection
from tablequeue.engines.notifier import Listener
from tablequeue.engines.poll import Poll
from tablequeue.engines.postgresql.connection import PostgreSQLConnection
from tablequeue.engines.table import Table

# The seeds of a queue's three advisory locks, numbers of tablequeue's own as in `install`: the lock of waiting
# consumers, of the push that notifies them, and of pushes in callers' transactions.
LOCKS = (8318836321, 8318836322, 8318836323)


class PostgreSQLListener(Listener):
    def __init__(self, connection: RawConnection) -> None:
        super().__init__(connection)
        self._lock = Lock()
        self._attended: set[str] = set()
        self._notified: set[str] = set()
        self._closed = False
        # A pipe that wakes `listen`: the statement of another thread may have read a notification from the socket.
        self._awake, self._waker = os.pipe()
        # Not select(), which takes no descriptor above 1,023.
        self._sources = poll()
        for source in (connection.dbapi.fileno(), self._awake):
            self._sources.register(source, POLLIN)
        connection.dbapi.add_notify_handler(self._note)

    @classmethod
    def open(cls, connection: RawConnection) -> Listener:
        assert isinstance(connection, PostgreSQLConnection)
        return Poll(connection) if connection.pooled else cls(connection)

    def __del__(self) -> None:
        os.close(self._awake)
        os.close(self._waker)

    def attend(self, table: Table) -> None:
        if table.channel not in self._attended:
            self._run(table, "attend")
            self._attended.add(table.channel)

    def leave(self, table: Table) -> None:
        self._attended.remove(table.channel)
        self._run(table, "leave")

    def listen(self) -> Collection[str] | None:
        connection = self.connection.dbapi
        while not self._closed:
            if any(source == self._awake for source, _ in self._sources.poll()):
                os.read(self._awake, 512)
            with self._lock:
                connection.pgconn.consume_input()
                while notify := connection.pgconn.notifies():
                    self._notified.add(notify.relname.decode())
                channels, self._notified = self._notified, set()
            if channels:
                return channels
        return None

    def close(self) -> None:
        self._closed = True
        os.write(self._waker, b"x")

    def _run(self, table: Table, operation: str) -> None:
        with self._lock:
            for statement in table.statements(operation):
                self.connection.cursor.execute(statement)

    def _note(self, notify: psycopg.Notify) -> None:
        self._notified.add(notify.channel)
        os.write(self._waker, b"x")
