"""PostgreSQL's listener: LISTEN, and an advisory lock by which a push sees whether somebody listens.

NOTIFY takes a lock of the whole cluster until its transaction has committed, so that commits which notify do so one
after the other. A push therefore asks first: it tries the lock that those who wait have shared, gives it back at once,
and notifies only if it was refused it. That needs no table, hence no dead rows and no heartbeat, and a lock ends with
its session.

Of the pushes of our own that commit at the same moment one notifies: it has another lock until its commit, and who does
not get that leaves the notification to it. What the others push may be committed a moment after it was looked for; then
it is found by the next pop or after the shortest pause (operations/wait.py). That lock is another one every 10 ms.

A push in a caller's transaction does not notify in it: that may last, and may be prepared. It is notified beside it,
and who wakes sees by a third lock, which the push has until the end of its transaction, that a push is under way.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from select import select
from threading import Lock

import psycopg

from tablequeue.engines.base import Table
from tablequeue.engines.connection import RawConnection
from tablequeue.engines.notifier import Listener
from tablequeue.engines.poll import Poll
from tablequeue.engines.postgresql.connection import PostgreSQLConnection

# The seeds of a queue's advisory locks, tablequeue's own numbers as in install.sql: of those who wait, of the push that
# notifies them, and of pushes in transactions of callers'.
LOCKS = (8318836321, 8318836322, 8318836323)


class PostgreSQLListener(Listener):
    def __init__(self, connection: RawConnection) -> None:
        super().__init__(connection)
        self._lock = Lock()
        self._attended: set[str] = set()
        self._notified: set[str] = set()
        self._closed = False
        # Wakes `listen`: another thread's statement may have read a notification off the socket.
        self._awake, self._waker = os.pipe()
        connection.dbapi.add_notify_handler(self._note)

    @classmethod
    def open(cls, connection: RawConnection) -> Listener:
        assert isinstance(connection, PostgreSQLConnection)
        return Poll(connection) if connection.pooled else cls(connection)

    def __del__(self) -> None:
        os.close(self._awake)
        os.close(self._waker)

    def attend(self, table: Table) -> None:
        if table.table_name not in self._attended:
            self._run(table, "attend")
            self._attended.add(table.table_name)

    def leave(self, table: Table) -> None:
        self._attended.remove(table.table_name)
        self._run(table, "leave")

    def listen(self) -> Collection[str] | None:
        connection = self.connection.dbapi
        while not self._closed:
            readable, _, _ = select([connection.fileno(), self._awake], [], [])
            if self._awake in readable:
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
