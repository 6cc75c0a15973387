"""What the endpoint does as AWS does it, where the documentation or users of AWS say how."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from tablequeue import Database, connect
from tablequeue.sqs import app, attributes, counting
from tablequeue.sqs.urls import Owner
from tests.sqs.exact.answers import answer
from tests.sqs.support import client, serving
from tests.sqs.test_endpoint import asked
from tests.sqs.test_messages import arn_of, counts, fifo, received, refused


def test_a_queue_that_is_not_there(address: str) -> None:
    code = "AWS.SimpleQueueService.NonExistentQueue"
    words = "The specified queue does not exist"
    assert answer(client(address, "json").get_queue_url, QueueName="none") == (code, 400, f"{words}.")
    assert answer(client(address, "query").get_queue_url, QueueName="none") == (
        code,
        400,
        f"{words} for this wsdl version.",
    )


def test_accounts_and_regions_are_kept_apart(sqs: Any, address: str, url: str, name: str) -> None:
    other = client(address, key="1" * 12)
    refused("AWS.SimpleQueueService.NonExistentQueue", other.get_queue_url, QueueName=name)
    theirs = other.create_queue(QueueName=name)["QueueUrl"]
    assert urlsplit(theirs).path == f"/{'1' * 12}/{name}"
    assert arn_of(other, theirs) == f"arn:aws:sqs:us-east-1:{'1' * 12}:{name}"
    far = client(address, key="1" * 12, region="eu-west-1")
    far.create_queue(QueueName=name)
    other.send_message(QueueUrl=theirs, MessageBody="theirs")
    assert received(sqs, url) == []
    assert sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId="1" * 12)["QueueUrl"] == theirs
    (message,) = received(sqs, theirs)
    assert message["Attributes"]["SenderId"] == "1" * 12
    assert [urlsplit(each).path for each in far.list_queues()["QueueUrls"]] == [f"/{'1' * 12}/{name}"]
    sqs.send_message(QueueUrl=f"http://sqs.eu-west-1.localhost/{'1' * 12}/{name}", MessageBody="far")
    host = f"sqs.eu-west-1.localhost:{urlsplit(address).port}"
    status, body = asked(address, "GET", f"/{'1' * 12}/{name}?Action=ReceiveMessage", Host=host)
    assert (status, b"<Body>far</Body>" in body) == (200, True)


def test_urls_have_several_forms(sqs: Any, url: str, name: str) -> None:
    for form in (name, f"/{'0' * 12}/{name}", f"http://host/{name}", f"http://host/queue/{name}", f"{url}/"):
        sqs.send_message(QueueUrl=form, MessageBody="x")
    sqs.send_message(QueueUrl=f"http://host/queue/us-east-1/{'0' * 12}/{name}", MessageBody="x")
    assert counts(sqs, url) == (6, 0, 0)
    gone = "AWS.SimpleQueueService.NonExistentQueue"
    refused(gone, sqs.send_message, QueueUrl=f"http://host/queue/eu-west-1/{'0' * 12}/{name}", MessageBody="x")
    for none in (f"http://host/{'2' * 12}/{name}", "http://[", "//", "http://host", ""):
        refused(gone, sqs.send_message, QueueUrl=none, MessageBody="x")


def test_json_is_taken_at_the_url_of_a_queue(address: str, url: str) -> None:
    target = {"X_Amz_Target": "AmazonSQS.SendMessage", "Content_Type": "application/x-amz-json-1.0"}
    status, body = asked(address, "POST", urlsplit(url).path, '{"MessageBody": "x"}', **target)
    assert (status, b"MD5OfMessageBody" in body) == (200, True)


def test_only_one_version_of_the_query_protocol_is_there(address: str) -> None:
    assert asked(address, "GET", "/?Action=ListQueues&Version=2012-11-05")[0] == 200
    status, body = asked(address, "GET", "/?Action=ListQueues&Version=2008-01-01")
    assert (status, b"<Code>NoSuchVersion</Code>" in body) == (400, True)
    assert asked(address, "HEAD", "/") == (405, b"")


def test_a_queue_has_a_limit_in_flight(sqs: Any, url: str, ordered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "MOST_IN_FLIGHT", 2)
    monkeypatch.setattr(counting, "LOOK_EVERY", 0.0)
    for n in range(4):
        sqs.send_message(QueueUrl=url, MessageBody=str(n))
        sqs.send_message(QueueUrl=ordered, MessageBody=str(n), MessageGroupId=str(n))
    first = received(sqs, url, MaxNumberOfMessages=2)
    assert answer(sqs.receive_message, QueueUrl=url)[:2] == ("OverLimit", 403)
    assert received(sqs, url, WaitTimeSeconds=1) == []
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first[0]["ReceiptHandle"], VisibilityTimeout=0)
    assert len(received(sqs, url)) == 1, "what is visible again is not in flight"
    assert len(received(sqs, ordered, MaxNumberOfMessages=2)) == 2
    assert received(sqs, ordered) == []


def test_a_dead_letter_counts_its_receives_in_all_queues(sqs: Any, url: str, name: str, shared: Database) -> None:
    work = sqs.create_queue(QueueName=f"{name}-work")["QueueUrl"]
    policy = {"deadLetterTargetArn": arn_of(sqs, url), "maxReceiveCount": 2}
    sqs.set_queue_attributes(QueueUrl=work, Attributes={"RedrivePolicy": json.dumps(policy)})
    sent = sqs.send_message(QueueUrl=work, MessageBody="x")
    for _ in range(2):
        assert received(sqs, work, VisibilityTimeout=0)
    assert received(sqs, work) == []
    shared.rename(f"{name}-work", f"{name}-job")
    with serving(app(shared)) as other:
        (dead,) = received(client(other), url, VisibilityTimeout=0)
    assert dead["Attributes"]["ApproximateReceiveCount"] == "3"
    assert dead["MessageId"] == sent["MessageId"]
    assert dead["Attributes"]["DeadLetterQueueSourceArn"] == f"arn:aws:sqs:us-east-1:{'0' * 12}:{name}-job"


def test_a_limit_of_each_group_needs_a_scope_of_each_group(sqs: Any, ordered: str) -> None:
    limit = {"FifoThroughputLimit": "perMessageGroupId"}
    refused("InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=ordered, Attributes=limit)
    sqs.set_queue_attributes(QueueUrl=ordered, Attributes={**limit, "DeduplicationScope": "messageGroup"})
    scope = {"DeduplicationScope": "queue"}
    refused("InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=ordered, Attributes=scope)
    sqs.set_queue_attributes(QueueUrl=ordered, Attributes={**scope, "FifoThroughputLimit": "perQueue"})


def test_urls_may_be_signed_in_advance(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path / 'a.db'}") as db, serving(app(db, credentials={"key": "secret"})) as address:

        def get(secret: str = "secret", seconds: int = 60) -> tuple[int, bytes]:
            mine = client(address, "query", secret=secret, region="eu-west-1")
            url = mine.generate_presigned_url("create_queue", {"QueueName": "a"}, seconds, "GET")
            return asked(address, "GET", url.removeprefix(address))

        status, body = get()
        assert (status, f"{address}/000000000000/a".encode() in body) == (200, True)
        assert arn_of(client(address, region="eu-west-1"), f"{address}/000000000000/a").split(":")[3] == "eu-west-1"
        status, body = get("other")
        assert (status, b"SignatureDoesNotMatch" in body) == (403, True)
        status, body = get(seconds=-1)
        assert (status, b"IncompleteSignature" in body) == (400, True)
        status, body = get(seconds=0)
        assert (status, b"RequestExpired" in body) in ((400, True), (200, False))


def test_a_new_scope_counts_a_minute_later(sqs: Any, ordered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(group: str) -> str:
        options = {"MessageBody": "x", "MessageGroupId": group, "MessageDeduplicationId": "d"}
        id: str = sqs.send_message(QueueUrl=ordered, **options)["MessageId"]
        return id

    first = send("a")
    sqs.set_queue_attributes(QueueUrl=ordered, Attributes={"DeduplicationScope": "messageGroup"})
    assert send("b") == first
    monkeypatch.setattr(attributes, "SCOPE_AFTER", 0)
    assert send("b") != first


def test_a_fifo_queue_with_a_delay_counts_what_is_behind_a_delayed_message(sqs: Any, name: str) -> None:
    url = fifo(sqs, f"{name}.fifo", DelaySeconds="900")
    for body in "abc":
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g")
    assert counts(sqs, url) == (0, 0, 3)


@pytest.mark.parametrize(
    ("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov"), ("eu-west-1", "aws")]
)
def test_regions_have_partitions(address: str, name: str, region: str, partition: str) -> None:
    mine = client(address, region=region)
    arn = arn_of(mine, mine.create_queue(QueueName=f"{name}-dead")["QueueUrl"])
    assert arn == f"arn:{partition}:sqs:{region}:{'0' * 12}:{name}-dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    mine.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})


async def never(self: Any) -> bool:
    return False


def of_one_account(self: Owner, url: str) -> tuple[Owner, str]:
    return self, urlsplit(url).path.rpartition("/")[2]


def test_mutants_are_caught(
    sqs: Any, address: str, url: str, name: str, ordered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught = (AssertionError, ClientError, pytest.fail.Exception)
    with monkeypatch.context() as mutant:
        mutant.setattr(counting.InFlight, "is_full", never)
        with pytest.raises(caught):
            test_a_queue_has_a_limit_in_flight(sqs, url, ordered, mutant)
    with monkeypatch.context() as mutant:
        mutant.setattr(Owner, "of", of_one_account)
        with pytest.raises(caught):
            test_urls_have_several_forms(sqs, url, name)


def test_a_handle_of_a_fifo_queue_expires_with_its_visibility_timeout(sqs: Any, ordered: str) -> None:
    sqs.send_message(QueueUrl=ordered, MessageBody="x", MessageGroupId="g")
    (message,) = received(sqs, ordered, VisibilityTimeout=0)
    handle = message["ReceiptHandle"]
    words = f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    for call, options in ((sqs.delete_message, {}), (sqs.change_message_visibility, {"VisibilityTimeout": 1})):
        assert answer(call, QueueUrl=ordered, ReceiptHandle=handle, **options) == ("InvalidParameterValue", 400, words)


def test_a_signature_is_of_the_operation_and_the_body(tmp_path: Path) -> None:
    with connect(f"sqlite:///{tmp_path / 'a.db'}") as db, serving(app(db, credentials={"key": "secret"})) as address:

        def status(target: dict[str, str], body: str, **more: str) -> int:
            hashed = {"X-Amz-Content-SHA256": sha256(b"{}").hexdigest()}
            request = AWSRequest("POST", f"{address}/", headers=target | hashed, data="{}")
            SigV4Auth(Credentials("key", "secret"), "sqs", "us-east-1").add_auth(request)
            return asked(address, "POST", "/", body, **dict(request.headers.items()), **more)[0]

        listed = "AmazonSQS.ListQueues"
        assert status({"X-Amz-Target": listed}, "{}") == 200
        assert status({"X-Amz-Target": listed}, '{"MaxResults": 1}') == 403
        assert status({}, "{}", X_Amz_Target=listed) == 403
