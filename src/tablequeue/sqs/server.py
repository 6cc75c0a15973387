"""The server of the endpoint: uvicorn, with connections that are bounded in size, in number and in time."""

from __future__ import annotations

import asyncio
import fcntl
import resource
import socket
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tablequeue.sqs.app import UNREAD, SqsApp

KEPT_OPEN = 75
"""Seconds for which a connection without requests stays open: SDKs keep theirs for a minute."""
GRACE = 10
"""Seconds in which requests must end after a signal."""
LARGEST_HEAD = 64 << 10
"""Bytes of the URL and the headers of a request."""
HEAD_WITHIN = 15.0
"""Seconds in which a client must have sent them."""
TAKEN_WITHIN = 60.0
"""Seconds in which a client must have read an answer, and in which what it still sends after one is read."""
UNREAD_WITHIN = 5.0
"""Seconds after an answer in which a broken connection means that the client has not read it."""
PIPELINED = 16
"""Requests of a connection that wait for the one before them. SDKs send none before they have the answer."""
RESERVED = 100
"""Files for the database, and for the program itself; all others may be connections."""
_LOOK_EVERY = 1.0
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def server(app: SqsApp, **options: Any) -> uvicorn.Server:
    """Return a server of the endpoint; `options` are more of those of `uvicorn.Config`."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        log_level="error",  # a request that is none is not worth a line
        server_header=False,
        access_log=False,
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=KEPT_OPEN,
        **options,
    )
    return _Server(config, app)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: SqsApp) -> None:
        super().__init__(config)
        self._app = app
        self._guard: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._guard = asyncio.create_task(self._watch())
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the receives that wait, before the server waits for open requests."""
        self._app.stop()
        await super().shutdown(sockets)
        if self._guard is not None:
            self._guard.cancel()

    async def _watch(self) -> None:
        """End the connections of clients that take too long."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            now = loop.time()
            for connection in [*self.server_state.connections]:
                if isinstance(connection, Connection) and connection.is_overdue(now):
                    connection.transport.abort()


class Connection(HttpToolsProtocol):
    """A connection of a client. Each limit is the client's own: the others do not wait for it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head: int | None = 0
        """Bytes that came since the last request; None while its body comes."""
        self._since = self.loop.time()
        """When the connection was last seen without a part of a request, or of an answer, on its way."""
        self._refused = False
        self._unread: Callable[[], None] | None = None
        """What to do if the client has not read the last answer."""
        self._answered = 0.0
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(self.connections) > max(limit - RESERVED, limit // 2):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head > LARGEST_HEAD and not self.transport.is_closing():
            self._refused = True
            self.transport.write(_TOO_LARGE)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            raise ValueError  # to uvicorn the request is not a valid one
        super().on_message_begin()
        self._unread = None
        self.scope["extensions"] = {UNREAD: {"call": self._if_unread}}

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()

    def eof_received(self) -> None:
        if self._has_all():
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._unread is not None and self.loop.time() - self._answered < UNREAD_WITHIN:
            self._unread()

    def is_overdue(self, now: float) -> bool:
        """Whether the client has taken too long for the head of a request, or to read an answer."""
        if self.transport.get_write_buffer_size() > 0:
            within = TAKEN_WITHIN
            self._answered = now
        elif self.cycle is None or (self.cycle.response_complete and self._head):
            within = HEAD_WITHIN
        elif self.cycle.response_complete and self._head is None:
            within = TAKEN_WITHIN
        else:
            self._since = now  # the endpoint is at work, or nobody is
            return False
        return now - self._since > within

    def _if_unread(self, call: Callable[[], None]) -> None:
        if self not in self.connections:  # it went just before
            call()
        self._unread, self._answered = call, self.loop.time()

    def _has_all(self) -> bool:
        """Whether the client, which has closed the connection, had acknowledged all answers."""
        socket_ = self.transport.get_extra_info("socket")
        unsent = self.transport.get_write_buffer_size() > 0 or any(fcntl.ioctl(socket_, termios.TIOCOUTQ, bytes(4)))
        return not unsent and socket_.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
