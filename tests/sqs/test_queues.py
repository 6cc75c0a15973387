"""Queues are made, found, configured, tagged and deleted as AWS does it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tablequeue import Database
from tablequeue.cli.commands import Settings
from tablequeue.errors import Unreachable
from tablequeue.model.definition import Definition
from tablequeue.sqs import model
from tablequeue.sqs.operations import OPERATIONS
from tests.sqs.support import client
from tests.sqs.test_messages import arn_of, counts, received, refused

cli = import_module("tablequeue.cli.sqs")  # the package has the command under that name


def test_every_operation_is_there() -> None:
    assert sorted(OPERATIONS) == sorted(model.service().operation_names)


def test_a_queue_has_the_attributes_of_aws(sqs: Any, queue_url: str) -> None:
    found = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["All"])["Attributes"]
    assert int(found.pop("CreatedTimestamp")) <= int(found.pop("LastModifiedTimestamp"))
    assert found == {
        "QueueArn": "arn:aws:sqs:us-east-1:000000000000:orders",
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "VisibilityTimeout": "30",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
    }
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=queue_url)


def test_attributes_are_set_and_compared(sqs: Any, queue_url: str, db: Database) -> None:
    set = {"VisibilityTimeout": "7", "MessageRetentionPeriod": "120", "DelaySeconds": "3"}
    sqs.set_queue_attributes(QueueUrl=queue_url, Attributes=set)
    assert sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=[*set])["Attributes"] == set
    definition = db.queue("orders").definition
    assert (definition.lease, definition.expires) == (7, 120)
    assert sqs.create_queue(QueueName="orders", Attributes=set)["QueueUrl"] == queue_url
    words = refused("QueueAlreadyExists", sqs.create_queue, QueueName="orders", Attributes={"DelaySeconds": "4"})
    assert words == "A queue already exists with the same name and a different value for attribute DelaySeconds"
    for name, text in {
        "DelaySeconds": "901",
        "VisibilityTimeout": "x",
        "Policy": "{",
        "MaximumMessageSize": "1",
    }.items():
        refused("InvalidAttributeValue", sqs.set_queue_attributes, QueueUrl=queue_url, Attributes={name: text})
    refused("InvalidAttributeName", sqs.set_queue_attributes, QueueUrl=queue_url, Attributes={"Nothing": "1"})
    refused("InvalidAttributeName", sqs.get_queue_attributes, QueueUrl=queue_url, AttributeNames=["Nothing"])


def test_names_are_checked(sqs: Any) -> None:
    for name in ("a b", "a" * 81, "a.fifo"):
        refused("InvalidParameterValue", sqs.create_queue, QueueName=name)
    refused("InvalidParameterValue", sqs.create_queue, QueueName="a", Attributes={"FifoQueue": "true"})


def test_queues_are_listed_in_pages(sqs: Any) -> None:
    urls = [sqs.create_queue(QueueName=f"q{n}")["QueueUrl"] for n in range(3)]
    sqs.create_queue(QueueName="other")
    page = sqs.list_queues(QueueNamePrefix="q", MaxResults=2)
    assert page["QueueUrls"] == urls[:2]
    page = sqs.list_queues(QueueNamePrefix="q", MaxResults=2, NextToken=page["NextToken"])
    assert (page["QueueUrls"], "NextToken" in page) == (urls[2:], False)


def test_regions_have_queues_of_their_own(sqs: Any, address: str, db: Database) -> None:
    other = client(address, region="eu-west-1")
    db.create_queue("everywhere")
    for each in (sqs, other):
        each.create_queue(QueueName="orders")
    sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName="orders")["QueueUrl"], MessageBody="x")
    assert received(other, other.get_queue_url(QueueName="orders")["QueueUrl"]) == []
    assert len(other.list_queues()["QueueUrls"]) == 2


def test_the_answer_says_where_a_queue_of_that_name_is(sqs: Any, address: str, db: Database) -> None:
    sqs.create_queue(QueueName="orders")
    other = client(address, region="eu-west-1")
    with pytest.raises(ClientError, match=r"the region eu-west-1; the queue is in .* the region us-east-1"):
        other.get_queue_url(QueueName="orders")
    url = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
    with pytest.raises(ClientError, match=r"the queue is in .* the region us-east-1"):
        other.send_message(QueueUrl=url, MessageBody="x")
    with pytest.raises(ClientError, match=r"does not exist\.$"):
        other.get_queue_url(QueueName="nowhere")


def test_a_queue_is_purged_and_deleted(sqs: Any, queue_url: str) -> None:
    for body in "ab":
        sqs.send_message(QueueUrl=queue_url, MessageBody=body)
    (held,) = received(sqs, queue_url)
    sqs.purge_queue(QueueUrl=queue_url)
    assert counts(sqs, queue_url) == (0, 0, 0)
    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=held["ReceiptHandle"])
    refused("AWS.SimpleQueueService.PurgeQueueInProgress", sqs.purge_queue, QueueUrl=queue_url)
    sqs.delete_queue(QueueUrl=queue_url)
    refused("AWS.SimpleQueueService.NonExistentQueue", sqs.send_message, QueueUrl=queue_url, MessageBody="x")
    assert "QueueUrls" not in sqs.list_queues()


def test_a_queue_that_python_drops_is_gone(sqs: Any, queue_url: str, db: Database) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    db.queue("orders").drop()
    refused("AWS.SimpleQueueService.NonExistentQueue", sqs.send_message, QueueUrl=queue_url, MessageBody="x")


def test_a_queue_that_python_drops_and_makes_again_goes_on(sqs: Any, queue_url: str, db: Database) -> None:
    for number in range(3):
        sqs.send_message(QueueUrl=queue_url, MessageBody=str(number))
        (message,) = received(sqs, queue_url)
        assert message["Body"] == str(number)
        definition = db.queue("orders").definition
        db.queue("orders").drop()
        assert isinstance(definition, Definition)
        db.create_queue("orders", payload=definition.payload, labels=definition.labels)
    assert counts(sqs, queue_url) == (0, 0, 0)


def test_tags_and_permissions_are_kept(sqs: Any, queue_url: str) -> None:
    sqs.tag_queue(QueueUrl=queue_url, Tags={"team": "post", "empty": ""})
    sqs.untag_queue(QueueUrl=queue_url, TagKeys=["empty", "none"])
    assert sqs.list_queue_tags(QueueUrl=queue_url)["Tags"] == {"team": "post"}
    sqs.add_permission(QueueUrl=queue_url, Label="one", AWSAccountIds=["1" * 12], Actions=["SendMessage"])
    attributes = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["Policy"])["Attributes"]
    (statement,) = json.loads(attributes["Policy"])["Statement"]
    assert (statement["Sid"], statement["Resource"]) == ("one", arn_of(sqs, queue_url))
    sqs.remove_permission(QueueUrl=queue_url, Label="one")
    refused("InvalidParameterValue", sqs.remove_permission, QueueUrl=queue_url, Label="one")


def test_a_queue_of_dead_letters_may_be_deleted(sqs: Any, queue_url: str) -> None:
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": 1})
    sqs.set_queue_attributes(QueueUrl=queue_url, Attributes={"RedrivePolicy": policy})
    sqs.delete_queue(QueueUrl=dead)
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    for _ in range(3):
        assert len(received(sqs, queue_url, VisibilityTimeout=0)) == 1


def test_a_policy_may_have_its_number_as_text(sqs: Any, queue_url: str) -> None:
    policy = {"deadLetterTargetArn": arn_of(sqs, queue_url), "maxReceiveCount": "5"}
    set = {"RedrivePolicy": json.dumps(policy)}
    for _ in range(2):
        url = sqs.create_queue(QueueName="work", Attributes=set)["QueueUrl"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])["Attributes"]
    assert json.loads(found["RedrivePolicy"]) == policy | {"maxReceiveCount": 5}
    for bad in ("{", "{}x", json.dumps(policy | {"maxReceiveCount": 0}), json.dumps({"maxReceiveCount": 1})):
        refused("InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=url, Attributes={"RedrivePolicy": bad})
    missing = policy | {"deadLetterTargetArn": arn_of(sqs, queue_url) + "x"}
    set = {"RedrivePolicy": json.dumps(missing)}
    words = refused("InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=url, Attributes=set)
    assert words.endswith("Reason: Dead letter target does not exist.")


def test_move_tasks_are_refused(sqs: Any, queue_url: str) -> None:
    start, arn = sqs.start_message_move_task, arn_of(sqs, queue_url)
    assert refused("InvalidParameterValue", start, SourceArn=arn) == (
        "Source queue must be configured as a Dead Letter Queue."
    )
    refused("ResourceNotFoundException", start, SourceArn=arn + "x")
    refused("ResourceNotFoundException", start, SourceArn=arn, DestinationArn=arn + "x")
    refused("InvalidParameterValue", sqs.cancel_message_move_task, TaskHandle="x")


def test_an_endpoint_waits_for_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "later"
    settings = Settings(url=f"sqlite:///{folder / 'work.db'}")
    monkeypatch.setattr(cli, "sleep", lambda seconds: folder.mkdir())
    with ExitStack() as opened:
        assert cli._when_it_answers(settings, opened).queues() == []
    assert "The endpoint tries again" in capsys.readouterr().err
    folder.rmdir()
    monkeypatch.setattr(cli, "PATIENCE", -1)
    with pytest.raises(Unreachable), ExitStack() as opened:
        cli._when_it_answers(settings, opened)
