"""What AWS does other than its pages let one expect: in both protocols, and by requests that are made by hand."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import pytest

from tests.sqs.exact.answers import answer
from tests.sqs.support import client
from tests.sqs.test_endpoint import asked
from tests.sqs.test_messages import arn_of, received, refused

JSON = "application/x-amz-json-1.0"


def attributes(sqs: Any, url: str, *names: str) -> dict[str, str]:
    found: dict[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[*names]).get("Attributes", {})
    return found


def test_booleans_are_taken_in_capitals(either: Any, address: str, name: str) -> None:
    set = {"FifoQueue": "True", "ContentBasedDeduplication": "TRUE", "SqsManagedSseEnabled": "False"}
    url = either.create_queue(QueueName=f"{name}.fifo", Attributes=set)["QueueUrl"]
    expected = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "SqsManagedSseEnabled": "false"}
    assert attributes(either, url, *set) == expected
    assert either.create_queue(QueueName=f"{name}.fifo", Attributes=set)["QueueUrl"] == url, "the same queue"
    assert either.create_queue(QueueName=f"{name}.fifo", Attributes=expected)["QueueUrl"] == url
    either.set_queue_attributes(QueueUrl=url, Attributes={"ContentBasedDeduplication": "False"})
    assert attributes(either, url, "ContentBasedDeduplication") == {"ContentBasedDeduplication": "false"}
    refused("InvalidAttributeValue", either.set_queue_attributes, QueueUrl=url, Attributes={"FifoQueue": "False"})
    pairs = {"1": ("FifoQueue", "True"), "2": ("SqsManagedSseEnabled", "False")}
    fields = "".join(f"&Attribute.{n}.Name={key}&Attribute.{n}.Value={text}" for n, (key, text) in pairs.items())
    status, body = asked(address, "GET", f"/?Action=CreateQueue&QueueName={name}x.fifo{fields}")
    assert (status, f"{name}x.fifo</QueueUrl>".encode() in body) == (200, True)


@pytest.mark.parametrize("batch", [False, True])
def test_the_header_of_a_trace_is_that_of_the_message(address: str, url: str, batch: bool) -> None:
    sqs = client(address)
    entry: dict[str, Any] = {"MessageBody": "x"}
    own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=own"}}
    entries = [{"Id": "a", **entry}, {"Id": "b", **entry, "MessageSystemAttributes": own}]
    calls = [{"Entries": entries}] if batch else entries
    for call in calls:
        target = f"AmazonSQS.SendMessage{'Batch' if batch else ''}"
        body = json.dumps({"QueueUrl": url, **call})
        status, told = asked(
            address, "POST", "/", body, X_Amz_Target=target, Content_Type=JSON, X_Amzn_Trace_Id="Root=1-5e;Sampled=1"
        )
        assert status == 200
        assert (b"MD5OfMessageSystemAttributes" in told) is (batch or call is entries[1])
    traces = [message["Attributes"]["AWSTraceHeader"] for message in received(sqs, url, MaxNumberOfMessages=10)]
    assert traces == ["Root=1-5e;Sampled=1", "Root=own"]
    asked(address, "GET", f"{urlsplit(url).path}?Action=SendMessage&MessageBody=x", X_Amzn_Trace_Id="Root=2")
    assert received(sqs, url)[0]["Attributes"]["AWSTraceHeader"] == "Root=2"
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert "AWSTraceHeader" not in received(sqs, url)[0]["Attributes"]


def test_names_of_message_attributes(either: Any, address: str, url: str) -> None:
    given = {"attr.1øßä": {"DataType": "String", "StringValue": "x"}, "n": {"DataType": "Number", "StringValue": "1"}}
    either.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=given)
    (message,) = received(either, url, MessageAttributeNames=["*"], VisibilityTimeout=0)
    assert message["MessageAttributes"] == given
    (message,) = received(either, url, MessageAttributeNames=["attr.1ø*", "attr.*"], VisibilityTimeout=0)
    assert [*message["MessageAttributes"]] == ["attr.1øßä"]
    path = f"{urlsplit(url).path}?Action=ReceiveMessage&VisibilityTimeout=0&MessageAttributeName.1={quote('*')}"
    assert "<Name>attr.1øßä</Name>".encode() in asked(address, "GET", path)[1]
    for bad in ("a b", "a!", "a/b", "€", "öther"):
        call = {"MessageAttributes": {bad: {"DataType": "String", "StringValue": "x"}}}
        refused("InvalidParameterValue", either.send_message, QueueUrl=url, MessageBody="x", **call)


def test_a_batch_without_a_group_is_an_invalid_value(either: Any, ordered: str) -> None:
    words = "The request must contain the parameter MessageGroupId."
    entries = [{"Id": "a", "MessageBody": "x", "MessageGroupId": "g"}, {"Id": "b", "MessageBody": "x"}]
    expected = ("InvalidParameterValue", 400, words)
    assert answer(either.send_message_batch, QueueUrl=ordered, Entries=entries) == expected
    assert answer(either.send_message, QueueUrl=ordered, MessageBody="x") == ("MissingParameter", 400, words)
    assert received(either, ordered) == []


def test_a_second_move_task_is_an_invalid_value(either: Any, name: str) -> None:
    dead = either.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    arn = arn_of(either, dead)
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    either.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})
    to = arn_of(either, either.create_queue(QueueName=f"{name}-to")["QueueUrl"])
    for n in range(3):
        either.send_message(QueueUrl=dead, MessageBody=str(n))
    slow = {"SourceArn": arn, "DestinationArn": to, "MaxNumberOfMessagesPerSecond": 1}
    handle = either.start_message_move_task(**slow)["TaskHandle"]
    words = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    assert answer(either.start_message_move_task, **slow) == ("InvalidParameterValue", 400, words)
    either.cancel_message_move_task(TaskHandle=handle)
    words = "Value for parameter TaskHandle is invalid."
    for bad in ("nothing", "bm90aGluZw=="):
        expected = ("InvalidParameterValue", 400, words)
        assert answer(either.cancel_message_move_task, TaskHandle=bad) == expected


def test_policies_are_of_2008(either: Any, url: str) -> None:
    either.add_permission(QueueUrl=url, Label="all", AWSAccountIds=["1" * 12], Actions=["SendMessage"])
    policy = json.loads(attributes(either, url, "Policy")["Policy"])
    arn = arn_of(either, url)
    assert policy == {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "all",
                "Effect": "Allow",
                "Principal": {"AWS": f"arn:aws:iam::{'1' * 12}:root"},
                "Action": "SQS:SendMessage",
                "Resource": arn,
            }
        ],
    }
    words = "Value none for parameter Label is invalid. Reason: can't find label."
    assert answer(either.remove_permission, QueueUrl=url, Label="none") == ("InvalidParameterValue", 400, words)


def test_the_period_of_a_key_goes_with_the_key(either: Any, name: str) -> None:
    period = {"KmsDataKeyReusePeriodSeconds": "60"}
    set = {"KmsMasterKeyId": "alias/mine", **period}
    url = either.create_queue(QueueName=name, Attributes=set)["QueueUrl"]
    assert attributes(either, url, *set) == set
    either.set_queue_attributes(QueueUrl=url, Attributes={"KmsMasterKeyId": ""})
    assert attributes(either, url, *set) == {}
    assert not set.keys() & attributes(either, url, "All").keys()
    other = either.create_queue(QueueName=f"{name}x", Attributes=period)["QueueUrl"]
    assert attributes(either, other, *period) == {}
    assert either.create_queue(QueueName=f"{name}x", Attributes=period)["QueueUrl"] == other, "it is kept"


def test_a_queue_may_be_its_own_dead_letter_queue(either: Any, name: str) -> None:
    url = either.create_queue(QueueName=name)["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": arn_of(either, url), "maxReceiveCount": 1})
    either.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    assert json.loads(attributes(either, url, "RedrivePolicy")["RedrivePolicy"]) == json.loads(policy)
    assert either.list_dead_letter_source_queues(QueueUrl=url)["queueUrls"] == [url]
    either.send_message(QueueUrl=url, MessageBody="x")
    for _ in range(3):
        assert received(either, url, VisibilityTimeout=0)
    either.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert not either.list_dead_letter_source_queues(QueueUrl=url).get("queueUrls")
    arn = arn_of(either, url).removesuffix(name) + f"{name}-new"
    own = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    new = either.create_queue(QueueName=f"{name}-new", Attributes={"RedrivePolicy": own})["QueueUrl"]
    assert either.list_dead_letter_source_queues(QueueUrl=new)["queueUrls"] == [new]
    either.delete_queue(QueueUrl=new)


def test_a_receive_of_nothing_in_the_query_protocol(sqs: Any, address: str, url: str) -> None:
    path = f"{urlsplit(url).path}?Action=ReceiveMessage&VisibilityTimeout=0"
    status, body = asked(address, "GET", path)
    assert (status, b"<ReceiveMessageResult/>" in body) == (200, True)
    ElementTree.fromstring(body)

    def listed() -> Any:
        document = json.loads(asked(address, "GET", path, Accept="application/json")[1])
        assert document["ReceiveMessageResponse"]["ResponseMetadata"]["RequestId"]
        return document["ReceiveMessageResponse"]["ReceiveMessageResult"]

    assert listed() == {"messages": None}
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert [message["Body"] for message in listed()["messages"]] == ["x"]
    assert b"<ReceiveMessageResult><Message>" in asked(address, "GET", path)[1]
