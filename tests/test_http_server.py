"""Clients that send half a request and wait: each server of ours goes on serving the others."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tablequeue import connect
from tablequeue.http import server
from tablequeue.observe import health_server
from tablequeue.observe.health import Health
from tablequeue.observe.health_server import HealthServer

# Fewer files than a program has by default, and more clients than that.
FILES = 256
CLIENTS = 400
# Seconds in which a client must have sent a request: fewer than in use.
WITHIN = 2.0
# With so many at once, the server meets more connections than it accepts in one step.
AT_ONCE = 16
HALVES = (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n")


@contextmanager
def program(command: str, folder: Path) -> Iterator[str]:
    """Run a command that serves, with few files; yield its URL."""
    url = f"sqlite:///{folder / 'work.db'}"
    connect(url).close()
    limited = [
        "import resource, runpy",
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))",
        "from tablequeue.http import server",
        f"server.HEAD_WITHIN = {WITHIN}",
        "runpy.run_module('tablequeue', run_name='__main__', alter_sys=True)",
    ]
    words = [sys.executable, "-c", "\n".join(limited), "--url", url, "--json", command, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            assert process.stderr.read() == b"", "no request is worth a line"


@contextmanager
def served(what: str, folder: Path) -> Iterator[str]:
    if what == "health":
        with HealthServer(Health(lambda: None), "127.0.0.1", 0) as server:
            yield server.url
    else:
        with program(what, folder) as url:
            yield url


@pytest.fixture
def many_files() -> Iterator[None]:
    """Files for all clients."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], min(2 * CLIENTS, before[1])), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize("what", ["serve", "sqs", "health"])
def test_clients_that_send_half_a_request_do_not_keep_out_others(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "REQUEST_WITHIN", WITHIN)
    with served(what, tmp_path) as url, ExitStack() as stack:
        there = urlsplit(url)

        def client(number: int) -> socket.socket:
            connection = socket.create_connection((there.hostname, there.port), timeout=60)
            with suppress(OSError):  # one too many
                connection.sendall(HALVES[number % len(HALVES)])
            return connection

        with ThreadPoolExecutor(AT_ONCE) as clients:
            for connection in clients.map(client, range(CLIENTS)):
                stack.enter_context(connection)
        while True:  # until the test's own time is over
            try:
                with urllib.request.urlopen(f"{url.rstrip('/')}/healthz", timeout=5) as answer:
                    assert answer.status == 200
                    break
            except OSError:
                continue


@contextmanager
def ending(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[socket.socket], threading.Event]]:
    """Yield clients of a server that ends: the first waits for its answer, the second has sent half of a request, the
    third has just connected, and the fourth had an answer before. The event lets the first answer go."""
    monkeypatch.setattr(server, "FIRST_WITHIN", 60)
    asked, told, go = threading.Event(), threading.Event(), threading.Event()

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            asked.set()
            await asyncio.to_thread(go.wait, 60)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    listener = socket.create_server(("127.0.0.1", 0))
    made = server.server(answer, stop=told.set, lifespan="off")
    running = threading.Thread(target=made.run, args=([listener],))
    running.start()
    clients = [socket.create_connection(listener.getsockname(), 60) for _ in range(4)]
    try:
        clients[3].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        before = b""
        while not before.endswith(b"ok"):
            before += clients[3].recv(4096)
        clients[1].sendall(b"GET / HTTP/1.1\r\nHost: loc")
        clients[0].sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert asked.wait(60)
        while len(made.server_state.connections) < 4:
            pass
        made.should_exit = True
        assert told.wait(60)
        assert clients[3].recv(4096) == b"", "nothing is due on it"
        yield clients, go
    finally:
        go.set()
        for client in clients:
            client.close()
        running.join(60)


def check_every_answer_comes_and_says_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ends answers what is due, and tells each of these clients to use the connection no more."""
    with ending(monkeypatch) as (clients, go):
        clients[1].sendall(b"alhost\r\n\r\n")
        clients[2].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        go.set()
        for client in clients[:3]:
            answer = b"".join(iter(lambda client=client: client.recv(4096), b""))  # type: ignore[misc]
            head, _, body = answer.lower().partition(b"\r\n\r\n")
            assert (head.count(b"connection: close"), body) == (1, b"ok")


def test_a_server_that_ends_answers_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    check_every_answer_comes_and_says_close(monkeypatch)


def test_a_mutant_that_closes_what_is_not_answered_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.Connection, "shutdown", HttpToolsProtocol.shutdown)
    with pytest.raises((AssertionError, OSError)):
        check_every_answer_comes_and_says_close(monkeypatch)


def test_a_server_that_ends_waits_for_no_client_that_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with ending(monkeypatch) as (clients, _):
        monkeypatch.setattr(server, "FIRST_WITHIN", 0)
        for client in clients[1:3]:
            with suppress(ConnectionResetError):
                assert client.recv(4096) == b""
