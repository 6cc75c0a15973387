"""The endpoint as a server: signatures, clients that go away, what is malformed, and its end."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from botocore.exceptions import ClientError
from botocore.session import Session
from click.testing import CliRunner

from tablequeue import Database, connect
from tablequeue.cli import main
from tablequeue.errors import BadInput
from tablequeue.sqs import app, queues
from tablequeue.sqs.app import LARGEST_BODY, SqsApp
from tablequeue.sqs.declared import POLICY, declared, make
from tablequeue.sqs.housekeeping import tidy
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
        gone.sendall(f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(form)}\r\n\r\n{form}".encode())
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


def test_queues_that_others_have_dropped_are_forgotten(endpoint: SqsApp, sqs: Any, db: Database) -> None:
    """Those that the endpoint has made, and those of Python: nothing is asked for them any more."""
    db.create_queue("python", payload="text")
    for name in ("dropped", "kept"):
        sqs.create_queue(QueueName=name)
    for name in ("dropped", "kept", "python"):
        sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"], MessageBody="x")
    for name in ("dropped", "python"):
        db.queue(name).drop()
    asyncio.run(tidy(endpoint.endpoint.queues))
    assert [hosted.name for hosted in endpoint.endpoint.queues.all()] == ["kept"]


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


def test_clients_are_not_told_where_the_database_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a logging configuration of another test may leave it.
    monkeypatch.setattr(logging.getLogger("tablequeue.sqs"), "disabled", False)
    caplog.set_level(logging.WARNING, "tablequeue.sqs")
    place = tmp_path / "secret-place"
    place.mkdir()
    with connect(f"sqlite:///{place / 'work.db'}") as mine, serving(app(mine)) as address:
        shutil.rmtree(place)
        status, body = asked(address, "GET", "/orders?Action=SendMessage&MessageBody=x")
        assert (status, b"ServiceUnavailable" in body, b"secret-place" in body) == (503, True, False)
    assert "secret-place" in caplog.text, "the log has it"


@contextmanager
def program(path: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `tablequeue sqs` on a database there; yield its URL, and the program."""
    url = f"sqlite:///{path / 'work.db'}"
    command = [sys.executable, "-m", "tablequeue", "--url", url, "--json", "sqs", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            line = running.stdout.readline()
            yield json.loads(line)["url"] if line else "", running
        finally:
            running.terminate()
            running.wait(60)


def test_any_key_may_be_allowed_in_a_private_network(tmp_path: Path) -> None:
    with program(tmp_path, "--host", "0.0.0.0", "--allow-any-key") as (address, running):
        address = address.replace("0.0.0.0", "127.0.0.1")
        url = client(address, key="no", secret="body").create_queue(QueueName="orders")["QueueUrl"]
        path = f"{urlsplit(url).path}?Action=PurgeQueue"
        for host in (
            "sqs:9324",
            "10.1.2.3:9324",
            "sqs.jobs.svc.cluster.local",
            "sqs.us-east-1.localhost.localstack.cloud",
        ):
            assert asked(address, "POST", "/", "Action=ListQueues", Host=host)[0] == 200, host
        for host, method, more in (
            ("example.org", "POST", {}),
            ("sqs", "GET", {}),
            ("10.1.2.3", "GET", {}),
            ("sqs", "POST", {"Origin": "http://example.org"}),
            ("sqs", "POST", {"Sec_Fetch_Site": "same-origin"}),
            ("localhost", "POST", {"Origin": "http://example.org"}),
        ):
            status, body = asked(address, method, path, Host=host, **more)
            assert (status, b"AccessDenied" in body) == (403, True), (host, method, more)
        running.terminate()
        assert running.stderr is not None
        assert "No keys are checked: everybody who reaches this address may use all queues." in running.stderr.read()


def test_names_of_localstack_are_of_this_machine(address: str) -> None:
    for host in ("localhost.localstack.cloud:4566", "sqs.eu-west-1.localhost.localstack.cloud:4566"):
        status, body = asked(address, "GET", "/?Action=CreateQueue&QueueName=a", Host=host)
        assert (status, f"http://{host}/000000000000/a".encode() in body) == (200, True)
    assert asked(address, "GET", "/?Action=ListQueues", Host="localstack.cloud")[0] == 403


def test_queues_of_a_file_are_made_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "queues.toml"
    file.write_text(
        """
        [orders]
        VisibilityTimeout = 7
        RedrivePolicy = {queue = "dead", maxReceiveCount = 3}
        tags = {team = "shop"}
        [dead]
        ["bills.fifo"]
        ContentBasedDeduplication = true
        """
    )
    for _ in range(2):  # they stay
        with program(tmp_path, "--queues", str(file)) as (address, _running):
            sqs = client(address)
            urls = {url.rpartition("/")[2]: url for url in sqs.list_queues()["QueueUrls"]}
            assert sorted(urls) == ["bills.fifo", "dead", "orders"]
            found = sqs.get_queue_attributes(QueueUrl=urls["orders"], AttributeNames=["All"])["Attributes"]
            assert found["VisibilityTimeout"] == "7"
            assert json.loads(found["RedrivePolicy"])["deadLetterTargetArn"].endswith(":dead")
            assert sqs.list_queue_tags(QueueUrl=urls["orders"])["Tags"] == {"team": "shop"}
            sqs.send_message(QueueUrl=urls["bills.fifo"], MessageBody="x", MessageGroupId="g")
    for text, words in (
        ("[orders]\nVisibilityTimeout = 8", "a different value for attribute VisibilityTimeout"),
        ("[orders", "cannot be read"),
    ):
        file.write_text(text)
        with program(tmp_path, "--queues", str(file)) as (_address, running):
            assert running.wait(60) == 1
            assert running.stderr is not None
            assert words in running.stderr.read()


@pytest.mark.parametrize("order", ["abcd", "cbda", "dcba"])
def test_declared_dead_letter_queues_may_be_in_any_order(db: Database, tmp_path: Path, order: str) -> None:
    """A chain: by name, by ARN in a table, and by ARN in a text."""
    arn = "arn:aws:sqs:us-east-1:000000000000"
    policies = {
        "a": '{queue = "b", maxReceiveCount = 2}',
        "b": f'{{deadLetterTargetArn = "{arn}:c", maxReceiveCount = 2}}',
        "c": json.dumps(json.dumps({"deadLetterTargetArn": f"{arn}:d", "maxReceiveCount": 2})),
    }
    file = tmp_path / "queues.toml"
    file.write_text("".join(f"[{name}]\n{POLICY} = {policies.get(name, chr(39) * 2)}\n" for name in order))
    asyncio.run(make(app(db).endpoint, declared(file)))
    assert [db.queue(name).definition.dead_letter_to for name in "abcd"] == ["b", "c", "d", None]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[orders]\nNothing = 8", "Unknown Attribute Nothing"),
        ("orders = 1", "is no table"),
        ('[orders]\ntags = "shop"', "orders.tags is no table"),
        ("[orders]\ntags = {since = 2026-01-01}", "since of orders is no text"),
        ("[orders]\ntags = {teams = ['a', 'b']}", "teams of orders is no text"),
        ('[orders]\ntags = {team = "\\u0001"}', "Invalid characters found"),
        ("[orders]\nDelaySeconds = 10:00:00", "DelaySeconds of orders is no text"),
        ('[orders]\nRedrivePolicy = {queue = "dead", maxReceiveCount = 2026-01-01}', "RedrivePolicy of orders is no"),
        (
            '[ring]\nRedrivePolicy = {queue = "other", maxReceiveCount = 1}\n'
            '[other]\nRedrivePolicy = {queue = "ring", maxReceiveCount = 1}',
            "Dead letter target does not exist",
        ),
    ],
)
def test_declared_queues_that_cannot_be_are_refused(db: Database, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "queues.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=words):
        asyncio.run(make(app(db).endpoint, declared(file)))


def test_the_command_line_makes_fifo_queues(tmp_path: Path, db: Database, sqs: Any) -> None:
    runner = CliRunner()
    url = f"sqlite:///{tmp_path / 'work.db'}"
    made = runner.invoke(main, ["--url", url, "queue", "create", "orders.fifo", "--lease", "5"])
    assert made.exit_code == 0, made.output
    there = sqs.get_queue_url(QueueName="orders.fifo")["QueueUrl"]
    found = sqs.get_queue_attributes(QueueUrl=there, AttributeNames=["All"])["Attributes"]
    assert (found["FifoQueue"], found["VisibilityTimeout"], found["MessageRetentionPeriod"]) == ("true", "5", "345600")
    entry = {"QueueUrl": there, "MessageBody": "no JSON", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    assert sqs.send_message(**entry)["MessageId"] == sqs.send_message(**entry)["MessageId"]
    assert [message["Body"] for message in received(sqs, there)] == ["no JSON"]


def test_a_strict_endpoint_makes_no_queue_that_was_deleted_just_now(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(app(db, strict=True)) as address:
        for protocol in ("json", "query"):
            mine = client(address, protocol)
            mine.delete_queue(QueueUrl=mine.create_queue(QueueName=protocol)["QueueUrl"])
            words = refused("AWS.SimpleQueueService.QueueDeletedRecently", mine.create_queue, QueueName=protocol)
            assert words.startswith("You must wait 60 seconds after deleting a queue")
        client(address, region="eu-west-1").create_queue(QueueName="json")
        monkeypatch.setattr(queues, "DELETED_FOR", 0)
        mine.delete_queue(QueueUrl=mine.create_queue(QueueName="soon")["QueueUrl"])
        mine.create_queue(QueueName="soon")


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("way", ["told", "killed", "child killed"])
def test_processes_share_a_socket_and_end_together(tmp_path: Path, way: str) -> None:
    with program(tmp_path, "--processes", "2") as (address, running):
        mine = client(address)
        url = mine.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        with ThreadPoolExecutor(8) as pool:
            sent = [
                pool.submit(
                    client(address, attempts=5).send_message,
                    QueueUrl=url,
                    MessageBody=str(number),
                    MessageGroupId="g",
                    MessageDeduplicationId=str(number // 2),
                )
                for number in range(40)
            ]
            assert len({each.result()["MessageId"] for each in sent}) == 20, "each of two clients is told the same id"
        processes = children_of(running.pid)
        assert len(processes) == 2
        if way == "child killed":
            os.kill(processes[0], signal.SIGKILL)
            assert running.wait(60) == 1
        elif way == "killed":
            running.kill()
        else:
            running.terminate()
            assert running.wait(60) == 0
        while any(is_running(process) for process in processes):
            time.sleep(0.01)


def test_the_page_names_the_errors_of_the_service_model_that_are_never_sent() -> None:
    model = Session().get_service_model("sqs")
    errors = {shape.name for name in model.operation_names for shape in model.operation_model(name).error_shapes}
    root = Path(__file__).parents[2]
    source = "".join(path.read_text("utf-8") for path in (root / "src/tablequeue/sqs").glob("*.py"))
    page = (root / "docs/sqs.md").read_text("utf-8")
    [sentence] = re.findall(r"errors of the service model are never sent: ([^.]+)\.", page)
    assert {*re.findall(r"`(\w+)`", sentence)} == {name for name in errors if f'"{name}"' not in source}
