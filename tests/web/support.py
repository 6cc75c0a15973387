"""A dashboard, and a client that sends requests like a browser or a scraper."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPMessage
from typing import Any
from urllib.parse import urlencode

from tablequeue import Database, Queue
from tablequeue.http import server as http_server
from tablequeue.web import dashboard
from tests.support import at, claimed

TOKEN = "a token for the tests"

HOSTILE = (
    "<script>document.title = 'owned'</script>",
    "<img src=x onerror=\"document.title = 'owned'\">",
    "</code></td></table></pre><h1>out</h1>",
    "{{ 7 * 7 }}{% raw %}",
    "'\"><svg onload=alert(1)>",
    "javascript:alert(1)",
    "left \u202eright \u2066 \x1b[31m red",
    "x" * 5000,
)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: HTTPMessage
    text: str


@dataclass
class Client:
    """A client of a dashboard. It does not follow redirects."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Answer:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, form: Mapping[str, Any], **headers: str) -> Answer:
        headers = {"content-type": "application/x-www-form-urlencoded", **headers}
        return self._ask("POST", path, urlencode(form, doseq=True), headers)

    def csrf(self, path: str = "/login") -> str:
        """Return the hidden fields of a form of the dashboard."""
        return self.get(path).text.partition('name="csrf" value="')[2].partition('"')[0]

    def log_in(self, token: str = TOKEN) -> Answer:
        answer = self.post("/login", {"csrf": self.csrf(), "token": token})
        if cookie := answer.headers["set-cookie"]:
            self.headers["cookie"] = cookie.partition(";")[0]
        return answer

    def _ask(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {"accept": "text/html", **self.headers, **headers})
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode(errors="replace"))
        finally:
            connection.close()


@contextmanager
def serving(database: Database, **options: Any) -> Iterator[Client]:
    """Serve the dashboard of a database on a free port, in a thread. Nobody waits for the end of the server, where
    uvicorn pauses for 0.2 seconds."""
    app = dashboard(database, name="the database", **options)
    server = http_server.server(app)
    listener = socket.create_server(("127.0.0.1", 0))
    # The socket listens already: connections wait until the server accepts them, which closes it in the end.
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}).start()
    try:
        yield Client(listener.getsockname()[1])
    finally:
        server.should_exit = True


def bury(queue: Queue, payloads: list[Any], error: str = "no") -> list[int]:
    """Push messages to a queue with one attempt, and fail them."""
    ids = queue.push_many(payloads)
    for claim in queue.pop_many(len(payloads)):
        claim.fail(error)
    return ids


def fill(database: Database) -> None:
    """Create a queue of each kind, with messages in every state."""
    reports = database.create_queue("reports", batches=True, max_attempts=1)
    for number in (7, 400):
        with reports.batch() as batch:
            batch.push_many(range(number))
    done, dead, *_ = reports.pop_many(6)
    done.complete()
    dead.fail("no")
    work = database.create_queue("work", max_attempts=1)
    work.push_many([{"n": number} for number in range(5)])
    work.pop_many(2)
    claimed(work).complete()
    claimed(work).fail("first line\nValueError: the last line")
    work.push({"later": True}, delay=3600, headers={"trace": "abc"})
    groups = database.create_queue("groups", groups=True, payload="text")
    groups.push("one", group="eu", key="k1")
    groups.push("two", group="eu")
    once = database.create_queue("once", delivery="at_most_once", order="priority", lease=1)
    once.push("lost", now=at(-1e9))
    once.pop(now=at(-1e9))
    database.create_queue("plain", history="none", payload="bytes").push(b"\x00\xff<b>")
    database.create_queue("empty", order="due", history=60)
    events = database.create_topic("events", groups=True, keep=3600)
    events.push_many([{"n": number} for number in range(6)], group="eu")
    mail = events.subscribe("mail", max_attempts=1)
    first, second, _ = mail.pop_many(3)
    first.complete()
    second.fail("ValueError: no address")
    events.subscribe("turns", ordered=True)
    database.create_topic("silent")
