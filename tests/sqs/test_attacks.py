"""What a hostile or a broken client sends: an error of AWS each, nothing held, and the others are served."""

from __future__ import annotations

import base64
import http.client
import importlib
import json
import re
import socket
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tablequeue import Database, connect
from tablequeue.http import server as http_server
from tablequeue.sqs import server
from tablequeue.sqs.app import SqsApp
from tests.sqs.support import client, serving
from tests.sqs.test_endpoint import asked
from tests.sqs.test_messages import fifo, received, refused

NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"
ARN = "arn:aws:sqs:us-east-1:000000000000:"
SURROGATE = "\ud800"
APP = importlib.import_module("tablequeue.sqs.app")  # whose function has the same name


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with connect(f"sqlite:///{tmp_path / 'work.db'}") as database:
        yield database


@pytest.fixture
def sqs(address: str) -> Any:
    return client(address)


def connected(address: str) -> socket.socket:
    host = urlsplit(address)
    return socket.create_connection((host.hostname, host.port), timeout=60)


def request(operation: str, parameters: Any) -> bytes:
    body = json.dumps(parameters).encode()
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.{operation}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def all_of(connection: socket.socket) -> bytes:
    """Return what a connection sends until its end."""
    parts = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def policy(text: str) -> dict[str, Any]:
    return {"QueueUrl": "orders", "Attributes": {"RedrivePolicy": text}}


def allowance(text: str) -> dict[str, Any]:
    return {"QueueUrl": "orders", "Attributes": {"RedriveAllowPolicy": text}}


def attribute(type: str, text: str = "x") -> dict[str, Any]:
    value = {"DataType": type, "StringValue": text}
    return {"QueueUrl": "orders", "MessageBody": "x", "MessageAttributes": {"k": value}}


def task(values: Any) -> dict[str, Any]:
    return {
        "TaskHandle": base64.b64encode(values if isinstance(values, bytes) else json.dumps(values).encode()).decode()
    }


BAD = [
    ("SendMessage", {"QueueUrl": "http://[", "MessageBody": "x"}),
    ("SetQueueAttributes", policy(f'{{"maxReceiveCount": Infinity, "deadLetterTargetArn": "{ARN}orders"}}')),
    ("SetQueueAttributes", policy(f'{{"maxReceiveCount": 1e999, "deadLetterTargetArn": "{ARN}orders"}}')),
    ("SetQueueAttributes", allowance('{"redrivePermission": "byQueue", "sourceQueueArns": 5}')),
    ("SetQueueAttributes", allowance('{"redrivePermission": "byQueue", "sourceQueueArns": true}')),
    ("SetQueueAttributes", {"QueueUrl": "orders", "Attributes": {"DelaySeconds": "\u0663"}}),
    ("SendMessage", attribute(f"String.{SURROGATE}")),
    ("SendMessage", attribute("String.\0")),
    ("SendMessage", attribute("Number", "\u0663")),
    (
        "SendMessage",
        {
            "QueueUrl": "orders",
            "MessageBody": "x",
            "MessageSystemAttributes": {"AWSTraceHeader": {"DataType": "String", "StringValue": SURROGATE}},
        },
    ),
    ("CancelMessageMoveTask", task({"taskId": "x", "sourceArn": 5})),
    ("CancelMessageMoveTask", task(b"[" * 100_000)),
    ("ReceiveMessage", {"QueueUrl": "orders", "MaxNumberOfMessages": 10**4000}),
    ("ReceiveMessage", {"QueueUrl": "orders", "MaxNumberOfMessages": float("nan")}),
    ("TagQueue", {"QueueUrl": "orders", "Tags": {str(n): "x" for n in range(10_000)}}),
    ("SendMessage", {"QueueUrl": "orders", "MessageBody": "x", "MessageAttributes": attribute("String")}),
]
FORMS = [
    "Action=SendMessageBatch&SendMessageBatchRequestEntry=1",
    "Action=SendMessageBatch&SendMessageBatchRequestEntry.1=x",
    "Action=SendMessage&MessageBody=x&MessageAttribute.1=x",
    "Action=SendMessage&MessageBody=x&MessageAttribute.1.Name=a&MessageAttribute.1.Value=x",
    "Action=SendMessage&MessageBody=x&MessageAttribute.1.Name.a=a&MessageAttribute.1.Value.DataType=String",
    f"Action=DeleteMessageBatch&DeleteMessageBatchRequestEntry.{'9' * 5000}.Id=x",
    "Action=ReceiveMessage&MaxNumberOfMessages=" + "9" * 5000,
    "Action=SendMessage&MessageBody=%ff%00",
    '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;">]><a>&c;</a>',
]


def test_nonsense_is_refused_and_not_logged(sqs: Any, address: str, queue_url: str, caplog: Any) -> None:
    path = urlsplit(queue_url).path
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    with closing(connection):
        for operation, parameters in BAD:
            connection.request("POST", "/", json.dumps(parameters), {"X-Amz-Target": f"AmazonSQS.{operation}"})
            response = connection.getresponse()
            assert (response.read(), response.status)[1] in (400, 404), (operation, parameters)
        for form in FORMS:
            connection.request("POST", path, form)
            response = connection.getresponse()
            assert (response.read(), response.status)[1] in (400, 404), form
    assert caplog.records == []


PAGES = [
    {"Origin": "https://example.org"},
    {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Host": "example.org"},  # whose address is now that of this machine
    {"Host": "example.org", "Origin": "http://localhost:3000"},
]
OURS = [{}, {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "cross-site"}, {"Host": "sqs.us-east-1.localhost"}]


def status_of(address: str, method: str, headers: dict[str, str], action: str = "ListQueues") -> int:
    host = urlsplit(address)
    with closing(http.client.HTTPConnection(str(host.hostname), host.port, timeout=60)) as connection:
        connection.request(method, f"/?Action={action}&Version=2012-11-05", headers=headers)
        return connection.getresponse().status


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_web_page_of_elsewhere_is_refused(address: str, method: str) -> None:
    for headers in PAGES:
        assert status_of(address, method, headers) == 403, headers
    for headers in OURS:
        assert status_of(address, method, headers) == 200, headers


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PURGE", "get"])
def test_only_get_and_post_run_operations(sqs: Any, db: Database, address: str, queue_url: str, method: str) -> None:
    path = f"DeleteQueue&QueueUrl={queue_url}"
    assert status_of(address, method, {}, path) in (400, 405)  # 400: no method of HTTP
    assert db.queues() == ["orders"]


def test_a_mutant_that_answers_any_method_is_detected(
    sqs: Any, db: Database, address: str, queue_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(APP, "METHODS", ("GET", "POST", "HEAD"))
    with pytest.raises(AssertionError):
        test_only_get_and_post_run_operations(sqs, db, address, queue_url, "HEAD")


def test_a_forged_handle_is_none_of_the_queue(sqs: Any, queue_url: str) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    (message,) = received(sqs, queue_url)
    format = struct.Struct(">8sQ16sd")
    seal, id, token, end = format.unpack(base64.b64decode(message["ReceiptHandle"]))
    handles = [(id, bytes(16), end), (2**63, token, end), (2**64 - 1, token, 0.0), (id + 1, token, float("nan"))]
    handles += [(id + 1, token, end), (id, token, end + 1)]
    texts = [base64.b64encode(format.pack(seal, *forged)).decode() for forged in handles]
    entries = [{"Id": str(n), "ReceiptHandle": text, "VisibilityTimeout": 0} for n, text in enumerate(texts)]
    answer = sqs.change_message_visibility_batch(QueueUrl=queue_url, Entries=entries)
    assert [each["Code"] for each in answer["Failed"]] == ["ReceiptHandleIsInvalid"] * 6
    assert received(sqs, queue_url) == []


@pytest.mark.parametrize(
    "flood",
    [
        [b"POST / HTTP/1.1\r\nX: ", *[b"a" * (1 << 20)] * 8],
        [b"POST / HTTP/1.1\r\n", *[b"X: aaaaaaaaaaaaaaaaaaaa\r\n" * 10_000] * 8],
        [b"GET /?", *[b"a" * (1 << 20)] * 8],
    ],
    ids=["a header", "headers", "a URL"],
)
def test_a_head_without_end_is_refused(address: str, flood: list[bytes]) -> None:
    with connected(address) as connection:
        for part in flood:
            connection.sendall(part)
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 431 ")


def test_a_body_without_end_is_refused_and_not_kept(endpoint: SqsApp, address: str) -> None:
    with connected(address) as connection:
        connection.sendall(
            request("ListQueues", {}).partition(b"Content-Length")[0] + b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(16):
            connection.sendall(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 413 ")


def test_large_bodies_have_a_limit_together(
    sqs: Any, endpoint: SqsApp, address: str, queue_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(APP, "MOST_BYTES", 1 << 20)
    body = json.dumps({"QueueUrl": queue_url, "MessageBody": "x" * (900 << 10)})
    half = request("SendMessage", json.loads(body))
    with connected(address) as first:
        first.sendall(half[:-10])
        while endpoint._bodies._held < 900 << 10:
            pass  # until the first is read
        assert asked(address, "POST", "/", body, X_Amz_Target="AmazonSQS.SendMessage")[0] == 503
        sqs.send_message(QueueUrl=queue_url, MessageBody="small")
        first.sendall(half[-10:])
        assert first.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    sqs.send_message(QueueUrl=queue_url, MessageBody="x" * (900 << 10))


def test_requests_are_not_heaped_up(address: str) -> None:
    with connected(address) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
        assert all_of(connection).count(b" 200 OK") <= 1 + http_server.PIPELINED


@pytest.mark.parametrize("part", [b"", b"\r\n", b"POST / HTTP/1.1\r\nHost: localhost\r\n", b"whole"])
def test_slow_clients_lose_their_connection(
    sqs: Any, address: str, monkeypatch: pytest.MonkeyPatch, part: bytes
) -> None:
    for name in ("HEAD_WITHIN", "BODY_WITHIN"):
        monkeypatch.setattr(http_server, name, 0.0)
    with connected(address) as connection:
        if part == b"whole":  # the rest of a refused request
            head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
            connection.sendall(head + b"x")
        else:
            connection.sendall(part)
        all_of(connection)  # ends
    sqs.list_queues()


def test_a_slow_body_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(APP, "BODY_WITHIN", 0.1)
    with connected(address) as connection:
        connection.sendall(request("ListQueues", {})[:-1])
        assert b"RequestTimeout" in connection.recv(1 << 16)


Held = Callable[[], int]


@pytest.fixture
def held(sqs: Any, queue_url: str) -> Held:
    """Return what tells the number of messages in flight."""

    def held() -> int:
        name = "ApproximateNumberOfMessagesNotVisible"
        return int(sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=[name])["Attributes"][name])

    return held


def none_held(held: Held, within: float = 60) -> None:
    end = time.monotonic() + within
    while held():
        assert time.monotonic() < end, "a message is held for nobody"
        time.sleep(0.01)


def test_an_answer_that_nobody_reads_gives_the_messages_back(
    sqs: Any, address: str, queue_url: str, held: Held
) -> None:
    for n in range(5):
        sqs.send_message(QueueUrl=queue_url, MessageBody=str(n))
    asked = request("ReceiveMessage", {"QueueUrl": queue_url, "WaitTimeSeconds": 5, "VisibilityTimeout": 3600})
    for n in range(40):
        with connected(address) as connection:
            connection.sendall(asked)
            if n % 4 == 3:  # its answer is there, and unread
                connection.recv(1, socket.MSG_PEEK)
    none_held(held)
    with connected(address) as connection:
        connection.sendall(asked)
        read = b""
        while b"ReceiptHandle" not in read or not read.endswith(b"}"):
            read += connection.recv(1 << 16)
    counts = [
        int(each["Attributes"]["ApproximateReceiveCount"]) for each in received(sqs, queue_url, MaxNumberOfMessages=10)
    ]
    assert counts == [1] * 4, "what was read is held"


def test_a_mutant_that_keeps_what_was_not_read_is_detected(
    sqs: Any, address: str, queue_url: str, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.Connection, "_if_unread", lambda self, call: None)
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    with connected(address) as connection:
        connection.sendall(request("ReceiveMessage", {"QueueUrl": queue_url, "VisibilityTimeout": 3600}))
        connection.recv(1, socket.MSG_PEEK)
    with pytest.raises(AssertionError, match="held for nobody"):
        none_held(held, within=0.5)


def received_at_last(sqs: Any, address: str, queue_url: str, head: str, n: int) -> None:
    """Receive `n` messages, each by a connection of its own that the server closes."""
    for _ in range(n):
        sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    asked = request("ReceiveMessage", {"QueueUrl": queue_url, "VisibilityTimeout": 3600})
    for _ in range(n):
        with connected(address) as connection:
            connection.sendall(asked.replace(b" HTTP/1.1\r\n", head.encode()))
            assert b"ReceiptHandle" in all_of(connection)


@pytest.mark.parametrize("head", [" HTTP/1.1\r\nConnection: close\r\n", " HTTP/1.0\r\n"], ids=["close", "1.0"])
def test_what_is_received_by_a_connection_for_one_request_is_held(
    sqs: Any, address: str, queue_url: str, held: Held, head: str
) -> None:
    received_at_last(sqs, address, queue_url, head, 10)
    assert held() == 10


def test_a_mutant_that_takes_its_own_close_for_the_clients_is_detected(
    sqs: Any, address: str, queue_url: str, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(self: Any, exc: Exception | None) -> None:
        http_server.Connection.connection_lost(self, exc)
        if self._unread is not None:
            self._unread()

    monkeypatch.setattr(server.Connection, "connection_lost", lost)
    received_at_last(sqs, address, queue_url, " HTTP/1.1\r\nConnection: close\r\n", 10)
    assert held() < 10


def test_the_end_of_the_server_gives_back_nothing_that_was_read(db: Database, endpoint: SqsApp) -> None:
    with serving(endpoint, end=True) as url:
        sqs = client(url)
        queue_url = sqs.create_queue(QueueName="orders")["QueueUrl"]
        sqs.send_message(QueueUrl=queue_url, MessageBody="x")
        assert received(sqs, queue_url, VisibilityTimeout=3600)
    assert db.queue("orders").stats().in_progress == 1


def test_a_large_answer_that_nobody_reads_gives_the_messages_back(
    sqs: Any, address: str, queue_url: str, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        sqs.send_message(QueueUrl=queue_url, MessageBody="x" * (900 << 10))
    asked = request("ReceiveMessage", {"QueueUrl": queue_url, "MaxNumberOfMessages": 10, "VisibilityTimeout": 3600})
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host = urlsplit(address)
        connection.connect((host.hostname, host.port))
        connection.sendall(asked)
        while not held():
            time.sleep(0.01)
        monkeypatch.setattr(http_server, "TAKEN_WITHIN", 0.0)
        none_held(held)


def test_a_receive_that_fails_gives_the_messages_back(
    sqs: Any, queue_url: str, monkeypatch: pytest.MonkeyPatch, held: Held
) -> None:
    def fail(*given: object) -> None:
        raise RuntimeError("a fault of the endpoint, and not of the message")

    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    with monkeypatch.context() as broken:
        broken.setattr("tablequeue.sqs.messages.md5", fail)
        refused("InternalFailure", sqs.receive_message, QueueUrl=queue_url)
    none_held(held)
    assert received(sqs, queue_url)[0]["Attributes"]["ApproximateReceiveCount"] == "1"


def test_a_queue_may_be_dropped_while_receives_wait(sqs: Any, address: str, db: Database) -> None:
    url = fifo(sqs)
    with ThreadPoolExecutor(3) as pool:
        waiting = [
            pool.submit(
                refused,
                NO_QUEUE,
                sqs.receive_message,
                QueueUrl=url,
                WaitTimeSeconds=20,
            )
            for _ in range(3)
        ]
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
        with closing(connection):
            number = None
            while number != "3":
                connection.request("GET", "/metrics")
                found = re.search(r"waiting (\d+)", connection.getresponse().read().decode())
                number = found and found[1]
        db.queue(url.rpartition("/")[2]).drop()
        for each in waiting:
            each.result()
    sqs.list_queues()


def test_a_locked_database_is_a_reason_to_try_again(tmp_path: Path, sqs: Any, queue_url: str, address: str) -> None:
    path = tmp_path / "work.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other, ThreadPoolExecutor(1) as pool:
        other.execute("begin immediate")
        sent = pool.submit(sqs.send_message, QueueUrl=queue_url, MessageBody="x")
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
        with closing(connection):
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
        other.execute("rollback")
        assert sent.result()["MessageId"]
