"""Serves the health of a process over HTTP, in threads of the standard library."""

from __future__ import annotations

import logging
import socket
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from time import monotonic
from typing import Any, Self
from urllib.parse import urlsplit

from tablequeue.errors import BadInput
from tablequeue.http.hosts import is_loopback
from tablequeue.observe.health import Health, HealthAnswer

logger = logging.getLogger("tablequeue.health")

# Requests that are answered at the same time; more are refused. Seconds after which a connection is ended, whatever its
# client still sends or reads.
MOST_REQUESTS = 16
REQUEST_WITHIN = 5.0


class HealthServer:
    """Serves /healthz, /readyz and /metrics until the block ends. It needs no secret: it shows names and numbers only.

    On a loopback address it answers only requests for the names of this machine, so that no web page can read it by its
    own host name. `BadInput` if it cannot listen there. `port` 0 finds a free one; see the attribute `port`.
    """

    def __init__(self, health: Health, host: str, port: int) -> None:
        family = _IPv6 if ":" in host else _Server
        try:
            self._server = family((host, port), _handler(health, is_loopback(host)))
        except OSError as error:
            raise BadInput(
                f"Health cannot be served on {host}, port {port}: {error.strerror or error}.",
                "Give another --health-host or --health-port; 0 finds a free port.",
            ) from None
        self.port: int = self._server.server_address[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"
        self._thread = Thread(target=self._server.serve_forever, name="health", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        logger.info("health at %s", self.url, extra={"url": self.url})
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 4 * MOST_REQUESTS

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._began: dict[Any, float] = {}

    def server_bind(self) -> None:
        """Bind without the look-up of the host's full name, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._began) < MOST_REQUESTS:
            self._began[request] = monotonic()
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._began[request]

    def service_actions(self) -> None:
        """End connections that have taken too long; the server calls it twice a second."""
        for request, began in list(self._began.items()):
            if monotonic() > began + REQUEST_WITHIN:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a request failed", exc_info=True)


class _IPv6(_Server):
    address_family = socket.AF_INET6


def _handler(health: Health, loopback: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_WITHIN

        def do_GET(self) -> None:
            answer = self._answer()
            body = answer.body.encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def _answer(self) -> HealthAnswer:
            try:
                host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
            except ValueError:
                host = ""
            if loopback and not is_loopback(host):
                return HealthAnswer(421, "text/plain", "This can be reached only by the names of its own machine.\n")
            found = health.answer(self.path.partition("?")[0])
            return found or HealthAnswer(404, "text/plain", "There are /healthz, /readyz and /metrics.\n")

        def version_string(self) -> str:
            return "tablequeue"

        def log_message(self, *args: Any) -> None:
            """Log nothing: a probe comes every few seconds."""

    return Handler
