"""The server of the endpoint: it tells the application when an answer was not read."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import termios
from collections.abc import Callable
from typing import Any

import uvicorn

from tablequeue.http import server as http_server
from tablequeue.sqs.app import UNREAD, SqsApp

UNREAD_WITHIN = 5.0
"""Seconds after an answer in which a broken connection means that the client has not read it."""


def server(app: SqsApp, **options: Any) -> uvicorn.Server:
    """Return a server of the endpoint; `options` are further options of `uvicorn.Config`.

    When it is to end, it answers the waiting receives.
    """
    # The endpoint does not need the client's address behind a proxy; a header has the scheme that it used.
    return http_server.server(app, stop=app.stop, http=Connection, proxy_headers=False, **options)


class Connection(http_server.Connection):
    """A connection of a client, who may go away before it has read an answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._unread: Callable[[], None] | None = None
        """The function to call if the client has not read the last answer."""
        self._answered = 0.0
        self._ended = False
        """Whether the client has closed the connection, or is cut off because it takes too long."""
        super().connection_made(transport)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._unread = None
        self.scope["extensions"] = {UNREAD: {"call": self._if_unread}}

    def eof_received(self) -> None:
        self._ended = True
        if self._has_all():
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # A connection closed here, after `Connection: close` or at the end of the server, does not mean that the client
        # left.
        broken = exc is not None or self._ended
        if broken and self._unread is not None and self.loop.time() - self._answered < UNREAD_WITHIN:
            self._unread()

    def is_overdue(self, now: float) -> bool:
        if self.transport.get_write_buffer_size() > 0:
            self._answered = now
        overdue = super().is_overdue(now)
        self._ended |= overdue
        return overdue

    def _if_unread(self, call: Callable[[], None]) -> None:
        if self not in self.connections:  # the client went just before
            call()
        self._unread, self._answered = call, self.loop.time()

    def _has_all(self) -> bool:
        """Whether the client, which has closed the connection, had acknowledged all answers."""
        socket_ = self.transport.get_extra_info("socket")
        unsent = self.transport.get_write_buffer_size() > 0 or any(fcntl.ioctl(socket_, termios.TIOCOUTQ, bytes(4)))
        return not unsent and socket_.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
