"""The endpoint as a server: signatures, clients that go away, what is malformed, and its end."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from botocore.exceptions import ClientError

from tablequeue import Database, connect
from tablequeue.sqs import app
from tablequeue.sqs.app import LARGEST_BODY, SqsApp
from tests.sqs.support import client, serving
from tests.sqs.test_messages import received, refused

NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with connect(f"sqlite:///{tmp_path / 'work.db'}") as database:
        yield database


@pytest.fixture
def sqs(address: str) -> Any:
    return client(address)


def asked(address: str, method: str, path: str, body: bytes | str = b"", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_requests_are_signed_where_keys_are_given(db: Database) -> None:
    with serving(app(db, credentials={"key": "secret"})) as address:
        for protocol in ("json", "query"):
            mine = client(address, protocol)
            url = mine.create_queue(QueueName="orders")["QueueUrl"]
            mine.send_message(QueueUrl=url, MessageBody="ä&b=c d+e")
            refused("SignatureDoesNotMatch", client(address, protocol, secret="other").list_queues)
            refused("InvalidClientTokenId", client(address, protocol, key="other").list_queues)
        status, body = asked(address, "GET", "/?Action=ListQueues")
        assert (status, b"MissingAuthenticationToken" in body) == (403, True)
        assert asked(address, "GET", "/health") == (200, b"ok\n")
        assert [asked(address, "GET", path)[0] for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3
        assert b"tablequeue_connected 1.0\n" in asked(address, "GET", "/metrics")[1]
        assert b'tablequeue_pushed_messages_total{queue="orders"}' in asked(address, "GET", "/metrics")[1]


def test_the_query_protocol_is_one_of_urls_too(sqs: Any, address: str, queue_url: str) -> None:
    path = urlsplit(queue_url).path
    status, body = asked(address, "GET", f"{path}?Action=SendMessage&MessageBody=a%26b")
    assert status == 200
    assert ElementTree.fromstring(body).tag == f"{NAMESPACE}SendMessageResponse"
    assert received(sqs, queue_url)[0]["Body"] == "a&b"
    status, body = asked(address, "GET", path)
    assert (status, body.strip()) == (404, b"<UnknownOperationException/>")
    status, body = asked(address, "GET", f"{path}?Action=ListQueues")
    assert status == 400
    code = ElementTree.fromstring(body).find(f"{NAMESPACE}Error/{NAMESPACE}Code")
    assert code is not None
    assert code.text == "InvalidAction"
    status, body = asked(address, "GET", f"{path}?Action=SendMessage")
    assert b"The request must contain the parameter MessageBody." in body
    status, body = asked(address, "GET", f"{path}?Action=GetQueueUrl&QueueName=orders")
    assert queue_url.encode() in body
    query = "Action=SetQueueAttributes&Attribute.Name=DelaySeconds&Attribute.Value=7"
    assert asked(address, "GET", f"{path}?{query}")[0] == 200
    status, body = asked(
        address, "GET", f"{path}?Action=GetQueueAttributes&AttributeName=DelaySeconds", Accept="application/json"
    )
    result = json.loads(body)["GetQueueAttributesResponse"]["GetQueueAttributesResult"]
    assert result == {"Attributes": [{"Name": "DelaySeconds", "Value": "7"}]}
    status, body = asked(address, "GET", f"{path}?Action=ListQueues", Accept="application/json")
    assert json.loads(body)["Error"]["Code"] == "InvalidAction"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ("{", {"X_Amz_Target": "AmazonSQS.ListQueues"}),
        ("[" * 100_000, {"X_Amz_Target": "AmazonSQS.ListQueues"}),
        ('{"QueueUrl": 1}', {"X_Amz_Target": "AmazonSQS.SendMessage"}),
        (r'{"QueueUrl": "\ud800", "MessageBody": "x"}', {"X_Amz_Target": "AmazonSQS.SendMessage"}),
        (r'{"QueueUrl": "\u0000", "MessageBody": "x"}', {"X_Amz_Target": "AmazonSQS.SendMessage"}),
        (r'{"QueueName": "\ud800"}', {"X_Amz_Target": "AmazonSQS.CreateQueue"}),
        ("{}", {"X_Amz_Target": "AmazonSQS.Nothing"}),
        ("{}", {"X_Amz_Target": "Other.ListQueues"}),
        ("Action=Nothing", {}),
        ("Action=ListQueues&a=2&a.b=1", {}),
        ("Action=ReceiveMessage&QueueUrl=x&MaxNumberOfMessages=many", {}),
        ("&".join(["Action=ListQueues", *(f"Attribute.{n}.Name=x" for n in range(10_001))]), {}),
        (b"\xff\xfe", {}),
    ],
)
def test_what_is_malformed_is_refused(address: str, body: bytes | str, headers: dict[str, str]) -> None:
    status, _ = asked(address, "POST", "/", body, **headers)
    assert 400 <= status < 500


@pytest.mark.parametrize("text", [r"\ud800", r"\u0000", r"\uffff"])
def test_characters_that_are_none_are_refused(address: str, queue_url: str, text: str) -> None:
    attribute = f'{{"DataType": "String", "StringValue": "{text}"}}'
    for body, attributes in ((text, "{}"), ("x", f'{{"a": {attribute}}}'), ("x", f'{{"{text}": {attribute}}}')):
        given = f'{{"QueueUrl": "{queue_url}", "MessageBody": "{body}", "MessageAttributes": {attributes}}}'
        status, _ = asked(address, "POST", "/", given, X_Amz_Target="AmazonSQS.SendMessage")
        assert status == 400


def test_a_body_that_is_too_large_is_refused(address: str) -> None:
    status, body = asked(address, "POST", "/", "", Content_Length=str(100 << 20))
    assert (status, b"RequestEntityTooLarge" in body) == (413, True)
    assert LARGEST_BODY < 100 << 20


def test_a_client_that_goes_away_while_it_waits_holds_nothing(sqs: Any, address: str, queue_url: str) -> None:
    form = f"Action=ReceiveMessage&WaitTimeSeconds=20&QueueUrl={queue_url}"
    host = urlsplit(address)
    with socket.create_connection((host.hostname, host.port)) as gone:
        gone.sendall(f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(form)}\r\n\r\n{form}".encode())
        while b"tablequeue_sqs_waiting 1.0" not in asked(address, "GET", "/metrics")[1]:
            time.sleep(0.01)
    while b"tablequeue_sqs_waiting 0.0" not in asked(address, "GET", "/metrics")[1]:
        time.sleep(0.01)
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    (message,) = received(sqs, queue_url)
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


def test_many_wait_and_each_message_wakes_one(sqs: Any, queue_url: str) -> None:
    with ThreadPoolExecutor(40) as pool:
        waiting = [pool.submit(received, sqs, queue_url, WaitTimeSeconds=20) for _ in range(40)]
        for n in range(40):
            sqs.send_message(QueueUrl=queue_url, MessageBody=str(n))
        bodies = [message["Body"] for each in waiting for message in each.result()]
    assert sorted(bodies, key=int) == [str(n) for n in range(40)]


def test_a_handle_works_in_another_process(sqs: Any, queue_url: str, db: Database) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    (message,) = received(sqs, queue_url)
    with serving(app(db)) as other:
        client(other).delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    assert db.queue("orders").stats().in_progress == 0


def test_a_signal_ends_the_program_and_answers_those_who_wait(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tablequeue", "--url", f"sqlite:///{tmp_path / 'a.db'}", "sqs", "--port", "0"]
    program = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout is not None
        address = json.loads(program.stdout.readline())["url"]
        mine = client(address)
        url = mine.create_queue(QueueName="orders")["QueueUrl"]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(received, mine, url, WaitTimeSeconds=20)
            while b"tablequeue_sqs_waiting 1.0" not in asked(address, "GET", "/metrics")[1]:
                time.sleep(0.01)
            program.send_signal(signal.SIGTERM)
            assert waiting.result() == []
        program.wait(60)
    finally:
        program.kill()
        program.wait()
        if program.stdout is not None:
            program.stdout.close()


def test_addresses_of_the_network_need_keys(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tablequeue",
        "--url",
        f"sqlite:///{tmp_path / 'a.db'}",
        "sqs",
        "--host",
        "0.0.0.0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Without keys everybody could use the queues." in done.stderr


def test_errors_have_both_codes(sqs: Any, queue_url: str) -> None:
    with pytest.raises(ClientError) as caught:
        sqs.send_message(QueueUrl=queue_url, MessageBody="x", DelaySeconds=901)
    error = caught.value.response["Error"]
    assert (error["Code"], error["QueryErrorCode"]) == ("InvalidParameterValue", "InvalidParameterValueException")


def test_an_endpoint_that_stops_is_not_ready(endpoint: SqsApp, address: str) -> None:
    endpoint.stop()
    assert [asked(address, "GET", path)[0] for path in ("/healthz", "/readyz")] == [200, 503]
