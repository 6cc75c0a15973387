"""What is answered to the letter as AWS answers it: codes, statuses, words, and what is there or absent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from itertools import count
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
from tablequeue.sqs.urls import Place
from tests.sqs.support import PROTOCOLS, client, serving
from tests.sqs.test_endpoint import asked
from tests.sqs.test_messages import arn_of, counts, fifo, received, refused

_numbers = count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with connect(f"sqlite:///{tmp_path_factory.mktemp('sqs') / 'work.db'}") as database:
        yield database


@pytest.fixture(scope="module")
def address(shared: Database) -> Iterator[str]:
    with serving(app(shared)) as url:
        yield url


@pytest.fixture(params=PROTOCOLS)
def either(request: pytest.FixtureRequest, address: str) -> Any:
    return client(address, request.param)


@pytest.fixture
def sqs(address: str) -> Any:
    return client(address)


@pytest.fixture
def name() -> str:
    return f"queue{next(_numbers)}"


@pytest.fixture
def url(sqs: Any, name: str) -> str:
    found: str = sqs.create_queue(QueueName=name)["QueueUrl"]
    return found


@pytest.fixture
def ordered(sqs: Any, name: str) -> str:
    return fifo(sqs, f"{name}.fifo")


def answer(call: Any, **options: Any) -> tuple[str, int, str]:
    """Return the code, the status and the words of the error of a call."""
    with pytest.raises(ClientError) as caught:
        call(**options)
    response = caught.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Message"]


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
    assert asked(address, "HEAD", "/") == (404, b"")


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


INVALID = "InvalidParameterValue"
MISSING = "MissingParameter"
KIND = "Reason: The request include parameter that is not valid for this queue type."
PUNCTUATION = "can only include alphanumeric and punctuation characters. 1 to 128 in length."
RANGE = "Value {} for parameter {} is invalid. Reason: Must be {}, if provided."
TEXT = {"DataType": "String", "StringValue": "x"}
CHARACTERS = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | "
    "#x10000 to #x10FFFF"
)
RESERVED = (
    "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for internal "
    "use. Additionally, they cannot start or end with '.'."
)


def body(**options: Any) -> dict[str, Any]:
    return {"MessageBody": "x", **options}


def attribute(type: str, text: str | None = None, name: str = "n", **value: Any) -> dict[str, Any]:
    value |= {"DataType": type} if text is None else {"DataType": type, "StringValue": text}
    return body(MessageAttributes={name: value})


@pytest.mark.parametrize(
    ("operation", "options", "expected"),
    [
        ("send_message", {"MessageBody": ""}, (MISSING, "The request must contain the parameter MessageBody.")),
        ("send_message", {"MessageBody": "\x01"}, ("InvalidMessageContents", CHARACTERS)),
        (
            "send_message",
            body(DelaySeconds=901),
            (INVALID, "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900."),
        ),
        (
            "send_message",
            body(MessageDeduplicationId="d"),
            (INVALID, f"Value d for parameter MessageDeduplicationId is invalid. {KIND}"),
        ),
        (
            "send_message",
            body(MessageGroupId="a b"),
            (INVALID, f"Value a b for parameter MessageGroupId is invalid. Reason: MessageGroupId {PUNCTUATION}"),
        ),
        (
            "send_message",
            attribute("Text", "x"),
            (
                INVALID,
                "The type of message (user) attribute 'n' is invalid. You must use only the following supported type "
                "prefixes: Binary, Number, String.",
            ),
        ),
        (
            "send_message",
            attribute("", "x"),
            (INVALID, "The message attribute 'n' must contain non-empty message attribute type."),
        ),
        (
            "send_message",
            attribute("String", ""),
            (INVALID, "Message (user) attribute 'n' must contain a non-empty value of type 'String'."),
        ),
        (
            "send_message",
            attribute("Binary", BinaryValue=b""),
            (INVALID, "Message (user) attribute 'n' must contain a non-empty value of type 'Binary'."),
        ),
        (
            "send_message",
            attribute("Number.int", "1a"),
            (INVALID, "Can't cast the value of message (user) attribute 'n' to a number."),
        ),
        ("send_message", attribute("String", "\x01"), (INVALID, CHARACTERS)),
        *(
            ("send_message", attribute("String", "x", name), (INVALID, RESERVED))
            for name in ("aws.x", "AMAZON.x", ".x", "x.", "a..b")
        ),
        (
            "send_message",
            attribute("String", "x", "n" * 257),
            (INVALID, "Message (user) attribute names must be shorter than 256 Bytes"),
        ),
        (
            "send_message",
            body(MessageAttributes={str(n): TEXT for n in range(11)}),
            (INVALID, "Number of message attributes [11] exceeds the allowed maximum [10]."),
        ),
        (
            "receive_message",
            {"MaxNumberOfMessages": 0},
            (INVALID, RANGE.format(0, "MaxNumberOfMessages", "between 1 and 10")),
        ),
        ("receive_message", {"WaitTimeSeconds": 21}, (INVALID, RANGE.format(21, "WaitTimeSeconds", ">= 0 and <= 20"))),
        (
            "receive_message",
            {"VisibilityTimeout": -1},
            (INVALID, RANGE.format(-1, "VisibilityTimeout", ">= 0 and <= 43200")),
        ),
        (
            "receive_message",
            {"ReceiveRequestAttemptId": "a"},
            (INVALID, f"Value a for parameter ReceiveRequestAttemptId is invalid. {KIND}"),
        ),
        ("receive_message", {"AttributeNames": ["No"]}, ("InvalidAttributeName", "Unknown Attribute No.")),
        (
            "delete_message",
            {"ReceiptHandle": "h"},
            ("ReceiptHandleIsInvalid", 'The input receipt handle "h" is not a valid receipt handle.'),
        ),
        (
            "send_message_batch",
            {"Entries": [{"Id": "a.b", "MessageBody": "x"}]},
            (
                "AWS.SimpleQueueService.InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most "
                "80 letters long.",
            ),
        ),
        *(
            (
                f"{verb}_batch",
                {"Entries": []},
                (
                    "AWS.SimpleQueueService.EmptyBatchRequest",
                    f"There should be at least one {kind}BatchRequestEntry in the request.",
                ),
            )
            for verb, kind in (
                ("send_message", "SendMessage"),
                ("delete_message", "DeleteMessage"),
                ("change_message_visibility", "ChangeMessageVisibility"),
            )
        ),
        (
            "delete_message_batch",
            {"Entries": [{"Id": str(n), "ReceiptHandle": "h"} for n in range(11)]},
            (
                "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
                "Maximum number of entries per request are 10. You have sent 11.",
            ),
        ),
        ("get_queue_attributes", {"AttributeNames": ["No"]}, ("InvalidAttributeName", "Unknown Attribute No.")),
        *(
            (
                "set_queue_attributes",
                {"Attributes": {name: text}},
                ("InvalidAttributeValue", f"Invalid value for the parameter {name}."),
            )
            for name, text in (
                ("DelaySeconds", "901"),
                ("DelaySeconds", ""),
                ("VisibilityTimeout", "43201"),
                ("MaximumMessageSize", "1023"),
                ("MaximumMessageSize", "1048577"),
                ("MessageRetentionPeriod", "1209601"),
                ("ReceiveMessageWaitTimeSeconds", "21"),
                ("KmsDataKeyReusePeriodSeconds", "59"),
                ("SqsManagedSseEnabled", "yes"),
                ("Policy", "text"),
            )
        ),
        *(
            (
                "set_queue_attributes",
                {"Attributes": {name: "true"}},
                ("InvalidAttributeName", f"Unknown Attribute {name}."),
            )
            for name in ("FifoQueue", "ContentBasedDeduplication", "QueueArn", "All", "No")
        ),
        (
            "set_queue_attributes",
            {"Attributes": {"DeduplicationScope": "queue"}},
            ("InvalidAttributeName", "You can specify the DeduplicationScope only when FifoQueue is set to true."),
        ),
        (
            "set_queue_attributes",
            {"Attributes": {"RedrivePolicy": "{"}},
            (
                INVALID,
                "Value { for parameter RedrivePolicy is invalid. Reason: Redrive policy is not a valid JSON map.",
            ),
        ),
        (
            "remove_permission",
            {"Label": "l"},
            (INVALID, "Value l for parameter Label is invalid. Reason: can't find label on existing policy."),
        ),
        (
            "add_permission",
            {"Label": "l", "AWSAccountIds": ["1"], "Actions": ["SendMessage"]},
            (INVALID, "Value [1] for parameter PrincipalId is invalid. Reason: Unable to verify."),
        ),
    ],
)
def test_the_words_of_aws(either: Any, url: str, operation: str, options: Any, expected: tuple[str, str]) -> None:
    code, status, words = answer(getattr(either, operation), QueueUrl=url, **options)
    assert (code, words) == expected
    assert status == {"ReceiptHandleIsInvalid": 404}.get(code, 400)


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


def of_one_account(self: Place, url: str) -> tuple[Place, str]:
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
        mutant.setattr(Place, "of", of_one_account)
        with pytest.raises(caught):
            test_urls_have_several_forms(sqs, url, name)


def test_a_handle_of_a_fifo_queue_expires_with_its_visibility_timeout(sqs: Any, ordered: str) -> None:
    sqs.send_message(QueueUrl=ordered, MessageBody="x", MessageGroupId="g")
    (message,) = received(sqs, ordered, VisibilityTimeout=0)
    handle = message["ReceiptHandle"]
    words = f"Value {handle} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
    for call, options in ((sqs.delete_message, {}), (sqs.change_message_visibility, {"VisibilityTimeout": 1})):
        assert answer(call, QueueUrl=ordered, ReceiptHandle=handle, **options) == (INVALID, 400, words)


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
