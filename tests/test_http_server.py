"""Clients that send half a request and wait: each server of ours goes on serving the others."""

from __future__ import annotations

import json
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tablequeue import connect
from tablequeue.observe.health import Health
from tablequeue.observe.health_server import HealthServer

# What a program may have by default on many systems, and more clients than that.
FILES = 1024
CLIENTS = 1200
# With so many at once, the server meets more connections than it accepts in one step.
AT_ONCE = 16
HALVES = (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n")


@contextmanager
def program(command: str, folder: Path) -> Iterator[str]:
    """Run a command that serves, with few files; yield its URL."""
    url = f"sqlite:///{folder / 'work.db'}"
    connect(url).close()
    words = [sys.executable, "-m", "tablequeue", "--url", url, "--json", command, "--port", "0"]
    limit = f"resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))"
    limited = f"import os, resource; {limit}; os.execv({words[0]!r}, {words!r})"
    with subprocess.Popen([sys.executable, "-c", limited], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
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
def test_clients_that_send_half_a_request_do_not_keep_out_others(what: str, tmp_path: Path) -> None:
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
