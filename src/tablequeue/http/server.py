"""The server of the dashboard and of the SQS endpoint: uvicorn, with connections bounded in size, number and time."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

KEPT_OPEN = 75
"""Seconds for which a connection without requests stays open: SDKs keep theirs for a minute."""
GRACE = 10
"""Seconds in which requests must end after a signal."""
LARGEST_HEAD = 64 << 10
"""Bytes of the URL and the headers of a request."""
HEAD_WITHIN = 15.0
"""Seconds in which a client must have sent them."""
BODY_WITHIN = 40.0
"""Seconds in which a client must have sent a body. An application that refuses a slow body does so before."""
TAKEN_WITHIN = 60.0
"""Seconds in which a client must have read an answer."""
PIPELINED = 16
"""Requests of a connection that wait for the one before them. SDKs send the next one only after the answer."""
RESERVED = 100
"""Files for the database, and for the program itself; all others may be connections."""
BACKLOG = 2048
"""Connections that wait until they are accepted."""
STEPS = 8
"""Steps of the event loop from a connection's accept until its file is closed, if it is refused. There are five."""
FIRST_WITHIN = 1.0
"""Seconds in which a client must have sent its first request when the server ends."""
_LOOK_EVERY = 1.0
_CLOSE = (b"connection", b"close")
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def server(app: Any, *, stop: Callable[[], None] | None = None, **options: Any) -> uvicorn.Server:
    """Return a server of an ASGI application; `options` are further options of `uvicorn.Config`.

    stop    called when the server is to end, before it waits for open requests.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    values: dict[str, Any] = {
        "http": Connection,
        "ws": "none",
        "log_config": None,
        "log_level": "error",  # an invalid request is not logged
        "server_header": False,
        "access_log": False,
        "backlog": _accepted_at_once(),
        "timeout_graceful_shutdown": GRACE,
        "timeout_keep_alive": KEPT_OPEN,
    }
    return _Server(uvicorn.Config(app, **values | options), stop)


def _files() -> int:
    """Return how many files this process may open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _accepted_at_once() -> int:
    # To asyncio the backlog is also how many connections it accepts in one step. If it opens one file too many, the
    # server accepts no connection for a second, and then fails again.
    return min(BACKLOG, _files() // (4 * STEPS))


def most_connections() -> int:
    """Return how many connections may be open at the same time."""
    return max(_files() - RESERVED - STEPS * _accepted_at_once(), _files() // 2)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, stop: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._stop = stop
        self._guard: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._guard = asyncio.create_task(self._watch())
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # All answers from now on, also on connections that are just being accepted.
        self.server_state.default_headers = [*self.server_state.default_headers, _CLOSE]
        if self._stop is not None:
            self._stop()
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
    """A connection of a client. Each limit is for one client: other clients do not wait for it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head: int | None = 0
        """Bytes that came since the last request; None while its body comes."""
        self._since = self.loop.time()
        """When the connection last had no part of a request or an answer to transfer."""
        self._refused = self._asked = False
        if len(self.connections) > most_connections():
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

    def shutdown(self) -> None:
        """Close the connection; if an answer is due, after that answer."""
        if (self._asked and self._head == 0) or (self.cycle is not None and not self.cycle.response_complete):
            super().shutdown()

    def on_headers_complete(self) -> None:
        self._head, self._asked = None, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()

    def is_overdue(self, now: float) -> bool:
        """Whether the client has taken too long for a part of a request, or to read an answer."""
        if not self._asked and _CLOSE in self.server_state.default_headers:
            within = FIRST_WITHIN
        elif self.transport.get_write_buffer_size() > 0:
            within = TAKEN_WITHIN
        elif self._head is None:
            within = BODY_WITHIN
        elif self.cycle is None or (self.cycle.response_complete and self._head):
            within = HEAD_WITHIN
        else:
            self._since = now  # the application is working, or there is no request
            return False
        return now - self._since > within
