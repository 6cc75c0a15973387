"""Webhooks: signed deliveries to a real HTTP server, and what each answer does to the message."""

from __future__ import annotations

import base64
import json
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks

from tablequeue import Backoff, Claim, Database, Queue, connect
from tablequeue.contrib.webhooks import Endpoint, Webhooks, delivery
from tablequeue.contrib.webhooks.delivery import LONGEST_WAIT, is_public, retry_after
from tablequeue.errors import BadInput
from tablequeue.worker import DeadLetter, Done, Retry, Worker

SECRET = "whsec_" + base64.b64encode(secrets.token_bytes(24)).decode()


class Receiver(ThreadingHTTPServer):
    """A server that verifies what it gets, and answers what the test has set."""

    status = 204
    headers: dict[str, str]
    body = b""
    silent = False

    def __init__(self) -> None:
        self.headers = {}
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.release = threading.Event()
        super().__init__(("127.0.0.1", 0), Post)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?shop=7"


class Post(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append((self.path, dict(self.headers), body))
        if self.server.silent:
            self.server.release.wait(60)
            return
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.body)

    def do_GET(self) -> None:
        raise AssertionError("nobody follows a redirect")

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.release.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with connect(f"sqlite:///{tmp_path / 'work.db'}") as db:
        yield db


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("hooks", backoff=Backoff(0), max_attempts=3)


def popped(queue: Queue, payload: Any = None, **options: Any) -> Claim:
    queue.push(payload, **options)
    claim = queue.pop()
    assert claim is not None
    return claim


def to(receiver: Receiver, **options: Any) -> Webhooks:
    return Webhooks(Endpoint(receiver.url, [SECRET]), private=True, **options)


def test_a_worker_delivers_what_the_receiver_can_verify(db: Database, queue: Queue, receiver: Receiver) -> None:
    payload = {"type": "order.paid", "data": {"name": "Zoë ☃", "n": [1, 2.5, None]}}
    queue.push(payload)
    work = Worker()
    work.handler("hooks")(to(receiver))
    assert work.run(db, drain=True)["completed"] == 1
    [(path, headers, body)] = receiver.requests
    assert path == "/hook?shop=7"
    assert headers["content-type"] == "application/json"
    assert standardwebhooks.Webhook(SECRET).verify(body, headers) == payload
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SECRET).verify(body + b" ", headers)


def test_a_retry_has_the_same_id_and_body_and_a_new_time(queue: Queue, receiver: Receiver) -> None:
    receiver.status = 500
    claim = popped(queue, {"b": 1, "a": 2})
    for _ in range(2):
        outcome = to(receiver)(claim)
        assert isinstance(outcome, Retry)
        assert outcome.after is None
        claim.fail("", retry_in=0)
        [claim] = queue.pop_many(1)
    (_, first, body), (_, second, body_again) = receiver.requests
    assert body == body_again
    assert first["webhook-id"] == second["webhook-id"]
    assert "." not in first["webhook-id"]


def test_messages_of_two_queues_have_different_ids(db: Database, queue: Queue, receiver: Receiver) -> None:
    for claim in (popped(queue), popped(db.create_queue("others")), popped(queue, headers={"webhook-id": "mine"})):
        assert to(receiver)(claim) == Done()
    ids = [headers["webhook-id"] for _, headers, _ in receiver.requests]
    assert len(set(ids)) == 3
    assert ids[2] == "mine"


def test_both_secrets_of_a_rotation_verify(queue: Queue, receiver: Receiver) -> None:
    new = "whsec_" + base64.b64encode(b"another secret of 24 bytes").decode()
    handler = Webhooks(lambda message: Endpoint(receiver.url, [new, SECRET]), private=True)
    assert handler(popped(queue, 7)) == Done()
    [(_, headers, body)] = receiver.requests
    assert [standardwebhooks.Webhook(secret).verify(body, headers) for secret in (SECRET, new)] == [7, 7]
    assert SECRET not in repr(Endpoint(receiver.url, [SECRET]))


def test_a_message_without_a_receiver_is_completed(queue: Queue) -> None:
    assert Webhooks(lambda message: None)(popped(queue)) == Done()


@pytest.mark.parametrize(
    ("status", "headers", "after"),
    [
        (429, {"retry-after": "120"}, 120.0),
        (503, {"retry-after": "0"}, None),
        (503, {"retry-after": "9" * 400}, LONGEST_WAIT),
        (503, {}, None),
        (301, {"location": "/elsewhere"}, None),
        (400, {}, None),
    ],
)
def test_other_answers_are_retried(
    queue: Queue, receiver: Receiver, status: int, headers: dict[str, str], after: float | None
) -> None:
    receiver.status, receiver.headers, receiver.body = status, headers, b"\xff" + b"x" * 10_000
    outcome = to(receiver)(popped(queue))
    assert isinstance(outcome, Retry)
    assert outcome.after == after
    assert f"HTTP {status}" in str(outcome.error)
    assert len(str(outcome.error)) < 300
    assert len(receiver.requests) == 1


OVERFLOWS = "Mon, 01 Jan 2035 00:00:00 +99999999999999999999"


def test_a_date_is_a_time_to_wait() -> None:
    assert 3500 < (retry_after(format_datetime(datetime.now(UTC) + timedelta(hours=1))) or 0) <= 3600
    for nothing in ("soon", "-5", "Mon, 01 Jan 2001 00:00:00 GMT", "Mon, 01 Jan 2035 00:00:00", "", OVERFLOWS):
        assert retry_after(nothing) is None


def test_gone_ends_the_message(db: Database, queue: Queue, receiver: Receiver) -> None:
    receiver.status = 410
    queue.push(1)
    work = Worker()
    work.handler("hooks")(to(receiver))
    assert work.run(db, drain=True)["dead"] == 1
    assert len(receiver.requests) == 1
    assert "HTTP 410" in queue.dead()[0].errors[-1].error


def test_an_endpoint_that_does_not_answer_is_retried(queue: Queue, receiver: Receiver) -> None:
    receiver.silent = True
    outcome = to(receiver, timeout=0.05)(popped(queue))
    assert isinstance(outcome, Retry)
    assert "TimeoutError" in str(outcome.error)
    receiver.server_close()
    outcome = to(receiver)(popped(queue))
    assert isinstance(outcome, Retry)
    assert re.search("Connection(Refused|Reset)Error", str(outcome.error))


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\xff nonsense\r\n\r\n",
        b"nonsense" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"h: x\r\n" * 500,
        b"HTTP/1.1 500 " + b"reason " * 5000 + b"\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_what_is_no_answer_of_http_is_retried(queue: Queue, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def reply() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        outcome = Webhooks(Endpoint(url, [SECRET]), private=True)(popped(queue))
        thread.join()
    assert isinstance(outcome, Retry)
    assert len(str(outcome.error)) < 500


def test_private_addresses_are_refused(queue: Queue, receiver: Receiver) -> None:
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "169.254.169.254", "0.0.0.0", "2130706433"):
        outcome = Webhooks(Endpoint(f"http://{host}:{receiver.server_port}/", [SECRET]))(popped(queue))
        assert isinstance(outcome, DeadLetter), host
        assert "private" in str(outcome.error)
    assert not receiver.requests
    assert is_public("93.184.216.34")
    assert is_public("2606:2800:220:1::1")
    assert is_public("64:ff9b::5db8:d822")
    private = (
        *(
            "10.0.0.1",
            "100.64.0.1",
            "192.0.0.192",
            "168.63.129.16",
            "100.100.100.200",
            "fd00:ec2::254",
            "::ffff:168.63.129.16",
            "224.0.0.1",
            "fe80::1%eth0",
            "fd00::1",
            "fec0::1",
            "3fff::1",
        ),
        # Addresses of IPv4 within IPv6.
        *("::10.0.0.1", "::ffff:0:10.0.0.1", "2002:7f00:1::", "64:ff9b::10.0.0.1", "64:ff9b:1::10.0.0.1"),
    )
    assert [address for address in private if is_public(address)] == []


@pytest.mark.parametrize("url", ["ftp://example.org", "https://", "https://a:b@example.org", "http://x:99999", "x"])
def test_an_endpoint_is_a_plain_url(url: str) -> None:
    with pytest.raises(BadInput):
        Endpoint(url, [SECRET])


@pytest.mark.parametrize("wrong", [[], SECRET, ["whsec_"], ["é"]], ids=["none", "a text", "an empty one", "not ASCII"])
def test_an_endpoint_has_secrets(wrong: Any) -> None:
    with pytest.raises(BadInput):
        Endpoint("https://example.org", wrong)


def test_a_header_that_http_cannot_carry_fails_the_attempt(db: Database, queue: Queue, receiver: Receiver) -> None:
    queue.push(json.dumps({}), headers={"webhook-id": "a\r\nx-evil: 1"})
    work = Worker()
    work.handler("hooks")(to(receiver))
    assert work.run(db, drain=True)["dead"] == 1
    assert not receiver.requests


def test_mutants_are_caught(queue: Queue, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, db: Database) -> None:
    """An id of each attempt's own, and a signature of another body."""
    real = delivery.signed

    def own_id(message: Claim, body: str, secrets: Any) -> dict[str, str]:
        return real(message, body, secrets) | {"webhook-id": str(message.attempt)}

    def other_body(message: Claim, body: str, secrets: Any) -> dict[str, str]:
        return real(message, body + " ", secrets)

    monkeypatch.setattr(delivery, "signed", own_id)
    with pytest.raises(AssertionError):
        test_a_retry_has_the_same_id_and_body_and_a_new_time(queue, receiver)
    monkeypatch.setattr(delivery, "signed", other_body)
    receiver.requests.clear()
    receiver.status = 204
    queue.purge()
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        test_a_worker_delivers_what_the_receiver_can_verify(db, queue, receiver)
