"""Messages are sent, received, hidden, deleted and moved as AWS does it."""

from __future__ import annotations

import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.request import urlopen

import pytest
import sqlalchemy as sa
from botocore.exceptions import ClientError

from tablequeue import Database, connect
from tablequeue.sqs import app, waiting
from tests.servers import Place, only
from tests.sqs.support import client, serving

ALL: dict[str, Any] = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}


def received(sqs: Any, url: str, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sqs.receive_message(QueueUrl=url, **{**ALL, **options}).get("Messages", [])
    return found


def refused(code: str, call: Any, **options: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**options)
    assert caught.value.response["Error"]["Code"] == code
    message: str = caught.value.response["Error"]["Message"]
    return message


def fifo(sqs: Any, name: str = "orders.fifo", **attributes: str) -> str:
    set = {"FifoQueue": "true", "ContentBasedDeduplication": "true", **attributes}
    url: str = sqs.create_queue(QueueName=name, Attributes=set)["QueueUrl"]
    return url


def arn_of(sqs: Any, url: str) -> str:
    arn: str = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return arn


def counts(sqs: Any, url: str) -> tuple[int, ...]:
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    names = ("", "NotVisible", "Delayed")
    return tuple(int(found[f"ApproximateNumberOfMessages{name}"]) for name in names)


def test_a_message_with_attributes_comes_back(sqs: Any, queue_url: str) -> None:
    attributes = {
        "text": {"DataType": "String", "StringValue": "grüße\r\n<&>"},
        "number": {"DataType": "Number.int", "StringValue": "007"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    body = "text & <tags>\r\n\t€ 🦜"
    sent = sqs.send_message(
        QueueUrl=queue_url, MessageBody=body, MessageAttributes=attributes, MessageSystemAttributes=trace
    )
    assert sent["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest()
    (message,) = received(sqs, queue_url)
    assert message["Body"] == body
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == attributes
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"]["AWSTraceHeader"] == "Root=1"
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert counts(sqs, queue_url) == (0, 1, 0)
    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
    assert counts(sqs, queue_url) == (0, 0, 0)


def test_batches_report_each_entry(sqs: Any, queue_url: str) -> None:
    entries = [{"Id": str(n), "MessageBody": f"m{n}"} for n in range(3)]
    entries[1] |= {"DelaySeconds": 901}  # type: ignore[dict-item]
    sent = sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)
    assert [entry["Id"] for entry in sent["Successful"]] == ["0", "2"]
    assert sent["Failed"] == [
        {
            "Id": "1",
            "SenderFault": True,
            "Code": "InvalidParameterValue",
            "Message": "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.",
        }
    ]
    messages = received(sqs, queue_url, MaxNumberOfMessages=10)
    assert [message["Body"] for message in messages] == ["m0", "m2"]
    handles = [message["ReceiptHandle"] for message in messages]
    changed = sqs.change_message_visibility_batch(
        QueueUrl=queue_url,
        Entries=[
            {"Id": id, "ReceiptHandle": handle, "VisibilityTimeout": 0}
            for id, handle in (("a", handles[0]), ("b", "garbage"))
        ],
    )
    assert [entry["Id"] for entry in changed["Successful"]] == ["a"]
    assert changed["Failed"][0]["Code"] == "ReceiptHandleIsInvalid"
    (again,) = received(sqs, queue_url, MaxNumberOfMessages=10)
    assert (again["Body"], again["Attributes"]["ApproximateReceiveCount"]) == ("m0", "2")
    handles = [again["ReceiptHandle"], handles[1]]
    deleted = sqs.delete_message_batch(
        QueueUrl=queue_url, Entries=[{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(handles)]
    )
    assert len(deleted["Successful"]) == 2
    assert counts(sqs, queue_url) == (0, 0, 0)


def test_batches_are_refused_as_a_whole(sqs: Any, queue_url: str) -> None:
    def send(*ids: str) -> dict[str, Any]:
        return {"QueueUrl": queue_url, "Entries": [{"Id": id, "MessageBody": "x"} for id in ids]}

    prefix = "AWS.SimpleQueueService."
    refused(f"{prefix}EmptyBatchRequest", sqs.send_message_batch, **send())
    refused(f"{prefix}TooManyEntriesInBatchRequest", sqs.send_message_batch, **send(*"abcdefghijk"))
    refused(f"{prefix}InvalidBatchEntryId", sqs.send_message_batch, **send("a b"))
    assert refused(f"{prefix}BatchEntryIdsNotDistinct", sqs.send_message_batch, **send(*"abba")) == "Id b repeated."
    entries = [{"Id": id, "MessageBody": "x" * 600_000} for id in "ab"]
    refused(f"{prefix}BatchRequestTooLong", sqs.send_message_batch, QueueUrl=queue_url, Entries=entries)
    assert counts(sqs, queue_url) == (0, 0, 0)


def test_a_visibility_timeout_of_zero_shows_it_again(sqs: Any, queue_url: str) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    (first,) = received(sqs, queue_url, VisibilityTimeout=0)
    (second,) = received(sqs, queue_url)
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    assert received(sqs, queue_url) == []
    sqs.change_message_visibility(QueueUrl=queue_url, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=0)
    (third,) = received(sqs, queue_url)
    assert third["Attributes"]["ApproximateReceiveCount"] == "3"
    assert third["MessageId"] == first["MessageId"]


def test_a_standard_queue_deletes_what_became_visible_again(sqs: Any, queue_url: str) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    (first,) = received(sqs, queue_url, VisibilityTimeout=0)
    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=first["ReceiptHandle"])
    assert received(sqs, queue_url) == []


def test_a_receive_waits_for_a_message(sqs: Any, queue_url: str) -> None:
    timer = threading.Timer(0.2, sqs.send_message, kwargs={"QueueUrl": queue_url, "MessageBody": "late"})
    timer.start()
    (message,) = received(sqs, queue_url, WaitTimeSeconds=20)
    assert message["Body"] == "late"
    timer.join()


def test_delays_are_of_the_queue_or_of_the_message(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="late", Attributes={"DelaySeconds": "900"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="later")
    sqs.send_message(QueueUrl=url, MessageBody="now", DelaySeconds=0)
    assert counts(sqs, url) == (1, 0, 1)
    (message,) = received(sqs, url, MaxNumberOfMessages=10)
    assert message["Body"] == "now"


def test_attributes_are_filtered(sqs: Any, queue_url: str) -> None:
    names = ("bar.one", "bar.two", "other")
    sqs.send_message(
        QueueUrl=queue_url,
        MessageBody="x",
        MessageAttributes={name: {"DataType": "String", "StringValue": "v"} for name in names},
    )
    for asked, found in {("bar.*",): names[:2], ("other",): names[2:], (".*",): names, ("none",): ()}.items():
        (message,) = received(sqs, queue_url, MessageAttributeNames=[*asked], VisibilityTimeout=0)
        assert tuple(sorted(message.get("MessageAttributes", {}))) == found
    (message,) = received(sqs, queue_url, MessageSystemAttributeNames=["SentTimestamp"], VisibilityTimeout=0)
    assert [*message["Attributes"]] == ["SentTimestamp"]
    (message,) = received(sqs, queue_url, MessageSystemAttributeNames=[])
    assert "Attributes" not in message


def test_parameters_are_checked(sqs: Any, queue_url: str) -> None:
    bad = "InvalidParameterValue"
    assert refused(bad, sqs.receive_message, QueueUrl=queue_url, MaxNumberOfMessages=11) == (
        "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided."
    )
    refused(bad, sqs.receive_message, QueueUrl=queue_url, WaitTimeSeconds=21)
    refused(bad, sqs.receive_message, QueueUrl=queue_url, VisibilityTimeout=43_201)
    refused("InvalidAttributeName", sqs.receive_message, QueueUrl=queue_url, AttributeNames=["Nothing"])
    assert refused("MissingParameter", sqs.send_message, QueueUrl=queue_url, MessageBody="") == (
        "The request must contain the parameter MessageBody."
    )
    assert refused(bad, sqs.send_message, QueueUrl=queue_url, MessageBody="x" * 1_048_577) == (
        "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes."
    )
    for name, attribute in (
        ("a b", {"DataType": "String", "StringValue": "x"}),
        ("AWS.a", {"DataType": "String", "StringValue": "x"}),
        ("a", {"DataType": "Sting", "StringValue": "x"}),
        ("a", {"DataType": "Number", "StringValue": "x"}),
        ("a", {"DataType": "String", "StringValue": ""}),
    ):
        refused(bad, sqs.send_message, QueueUrl=queue_url, MessageBody="x", MessageAttributes={name: attribute})
    refused("ReceiptHandleIsInvalid", sqs.delete_message, QueueUrl=queue_url, ReceiptHandle="x")
    refused("AWS.SimpleQueueService.NonExistentQueue", sqs.purge_queue, QueueUrl=queue_url + "x")


def test_handles_go_stale(sqs: Any, queue_url: str) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    (message,) = received(sqs, queue_url)
    options = {"QueueUrl": queue_url, "ReceiptHandle": message["ReceiptHandle"]}
    sqs.change_message_visibility(**options, VisibilityTimeout=0)
    sqs.change_message_visibility(**options, VisibilityTimeout=9)
    assert counts(sqs, queue_url) == (1, 0, 0)
    sqs.delete_message(**options)
    words = refused("InvalidParameterValue", sqs.change_message_visibility, **options, VisibilityTimeout=9)
    assert words.endswith("Reason: Message does not exist or is not available for visibility timeout change.")


def test_a_fifo_queue_keeps_order_and_drops_duplicates(sqs: Any) -> None:
    url = fifo(sqs)
    sent = [sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g") for body in "aabc"]
    assert sent[0]["MessageId"] == sent[1]["MessageId"]
    numbers = [each["SequenceNumber"] for each in sent]
    assert numbers == sorted(numbers)
    assert len({*numbers}) == 3
    (first, *_) = received(sqs, url)
    assert received(sqs, url) == []
    assert first["Attributes"]["MessageGroupId"] == "g"
    assert first["Attributes"]["MessageDeduplicationId"] == hashlib.sha256(b"a").hexdigest()
    assert first["Attributes"]["SequenceNumber"] == sent[0]["SequenceNumber"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert sqs.send_message(QueueUrl=url, MessageBody="a", MessageGroupId="g")["MessageId"] == sent[0]["MessageId"]
    assert [message["Body"] for message in received(sqs, url)] == ["b"]


def test_a_receive_gets_several_of_a_group_and_closes_it(sqs: Any) -> None:
    url = fifo(sqs)
    for body in ("a1", "a2", "a3", "b1", "c1", "b2"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[0])
    first = received(sqs, url, MaxNumberOfMessages=2)
    assert [message["Body"] for message in first] == ["a1", "a2"]
    others = received(sqs, url, MaxNumberOfMessages=10)
    assert [message["Body"] for message in others] == ["b1", "b2", "c1"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first[0]["ReceiptHandle"])
    assert received(sqs, url, MaxNumberOfMessages=10) == []
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first[1]["ReceiptHandle"], VisibilityTimeout=0)
    again = received(sqs, url, MaxNumberOfMessages=10)
    assert [message["Body"] for message in again] == ["a2", "a3"]


def test_the_groups_of_a_standard_queue_take_turns(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="work")["QueueUrl"]
    for group in "aaaaa":
        sqs.send_message(QueueUrl=url, MessageBody=group, MessageGroupId=group)
    assert [received(sqs, url)[0]["Body"] for _ in range(3)] == ["a"] * 3
    sqs.send_message(QueueUrl=url, MessageBody="b", MessageGroupId="b")
    sqs.send_message(QueueUrl=url, MessageBody="none")
    assert sorted(received(sqs, url)[0]["Body"] for _ in range(3)) == ["a", "b", "none"]
    (last,) = received(sqs, url, MessageSystemAttributeNames=["All"])
    assert last["Attributes"]["MessageGroupId"] == "a"


def test_a_fifo_queue_needs_a_group_and_an_id(sqs: Any) -> None:
    url = fifo(sqs, ContentBasedDeduplication="false")
    refused("MissingParameter", sqs.send_message, QueueUrl=url, MessageBody="x")
    refused("InvalidParameterValue", sqs.send_message, QueueUrl=url, MessageBody="x", MessageGroupId="g")
    options = {"QueueUrl": url, "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "d"}
    refused("InvalidParameterValue", sqs.send_message, **options, DelaySeconds=5)
    sqs.send_message(**options)
    (message,) = received(sqs, url, VisibilityTimeout=1)
    assert message["Attributes"]["MessageDeduplicationId"] == "d"


def test_the_scope_of_duplicates_may_be_the_group(sqs: Any) -> None:
    url = fifo(sqs, DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    for group in "abb":
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId=group, MessageDeduplicationId="d")
    assert counts(sqs, url)[0] == 2


def test_an_attempt_is_repeated(sqs: Any) -> None:
    url = fifo(sqs)
    for group in "ab":
        sqs.send_message(QueueUrl=url, MessageBody=group, MessageGroupId=group)
    first = received(sqs, url, ReceiveRequestAttemptId="one")
    again = received(sqs, url, ReceiveRequestAttemptId="one")
    assert [message["ReceiptHandle"] for message in first] == [message["ReceiptHandle"] for message in again]
    assert [message["Body"] for message in received(sqs, url, ReceiveRequestAttemptId="two")] == ["b"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first[0]["ReceiptHandle"])
    assert received(sqs, url, ReceiveRequestAttemptId="one") == []


@pytest.mark.parametrize("ordered", [False, True])
def test_dead_letters_move_and_come_back(sqs: Any, ordered: bool) -> None:
    ending = ".fifo" if ordered else ""
    make: Any = (
        (lambda name: fifo(sqs, name + ending))
        if ordered
        else (lambda name: sqs.create_queue(QueueName=name)["QueueUrl"])
    )
    dead, url = make("dead"), make("work")
    policy = {"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": 1}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert json.loads(attributes["RedrivePolicy"]) == policy
    assert sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    group = {"MessageGroupId": "g"} if ordered else {}
    sent = sqs.send_message(QueueUrl=url, MessageBody="x", **group)
    (first,) = received(sqs, url, VisibilityTimeout=0)
    assert received(sqs, url) == []
    (moved,) = received(sqs, dead, VisibilityTimeout=0)
    assert moved["MessageId"] == first["MessageId"] == sent["MessageId"]
    assert moved["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(sqs, url)
    assert moved["Attributes"].get("MessageGroupId") == group.get("MessageGroupId")
    handle = sqs.start_message_move_task(SourceArn=arn_of(sqs, dead))["TaskHandle"]
    assert handle
    (back,) = received(sqs, url, WaitTimeSeconds=10)
    assert back["Body"] == "x"
    (task,) = sqs.list_message_move_tasks(SourceArn=arn_of(sqs, dead))["Results"]
    assert task["Status"] in ("RUNNING", "COMPLETED")
    assert task["ApproximateNumberOfMessagesToMove"] == 1


def test_a_message_is_invisible_for_twelve_hours_at_most(sqs: Any, queue_url: str) -> None:
    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    (message,) = received(sqs, queue_url)
    handle = message["ReceiptHandle"]
    change = {"QueueUrl": queue_url, "ReceiptHandle": handle}
    words = refused("InvalidParameterValue", sqs.change_message_visibility, **change, VisibilityTimeout=43_200)
    assert words.endswith("Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]")
    entries = [{"Id": "1", "ReceiptHandle": handle, "VisibilityTimeout": 43_200}]
    (failed,) = sqs.change_message_visibility_batch(QueueUrl=queue_url, Entries=entries)["Failed"]
    assert failed["Message"] == words
    sqs.change_message_visibility(**change, VisibilityTimeout=43_000)
    assert received(sqs, queue_url) == []


def test_a_move_task_is_cancelled(sqs: Any, queue_url: str, place: Place) -> None:
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    source = arn_of(sqs, dead)
    policy = {"deadLetterTargetArn": source, "maxReceiveCount": 1}
    sqs.set_queue_attributes(QueueUrl=queue_url, Attributes={"RedrivePolicy": json.dumps(policy)})
    for n in range(9):
        sqs.send_message(QueueUrl=dead, MessageBody=str(n))
    start = {"SourceArn": source, "DestinationArn": arn_of(sqs, queue_url)}
    assert "must not be the same" in refused(
        "InvalidParameterValue", sqs.start_message_move_task, **start | {"DestinationArn": source}
    )
    handle = sqs.start_message_move_task(**start, MaxNumberOfMessagesPerSecond=3)["TaskHandle"]
    assert received(sqs, queue_url, WaitTimeSeconds=10)
    with serving(app(place.open()), end=True):
        pass  # an endpoint of the same process, whose end ends no task of this one
    sqs.cancel_message_move_task(TaskHandle=handle)
    while (task := sqs.list_message_move_tasks(SourceArn=source)["Results"][0])["Status"] == "CANCELLING":
        pass
    assert task["Status"] == "CANCELLED", task
    assert counts(sqs, dead)[0] > 0


@only("postgresql")
def test_a_visibility_timeout_that_another_process_ends_is_seen(
    address: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_EVERY", 0.1)
    sqs = client(address)
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (message,) = received(sqs, url)
    with serving(app(place.open())) as other, ThreadPoolExecutor(1) as pool:
        second = pool.submit(received, sqs, url, WaitTimeSeconds=20)
        while b"tablequeue_sqs_waiting 1" not in urlopen(f"{address}/metrics").read():
            pass
        handle = message["ReceiptHandle"]
        client(other).change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
        assert [again["Body"] for again in second.result()] == ["x"]


def test_python_and_sqs_share_a_queue(sqs: Any, db: Database) -> None:
    queue = db.create_queue("jobs")
    url = sqs.get_queue_url(QueueName="jobs")["QueueUrl"]
    queue.push({"a": [1, "ü"]}, headers={"tenant": "eu", "n": 3})
    (message,) = received(sqs, url)
    assert json.loads(message["Body"]) == {"a": [1, "ü"]}
    assert message["MessageAttributes"] == {
        "tenant": {"DataType": "String", "StringValue": "eu"},
        "n": {"DataType": "Number", "StringValue": "3"},
    }
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    refused("InvalidMessageContents", sqs.send_message, QueueUrl=url, MessageBody="{")
    sqs.send_message(
        QueueUrl=url, MessageBody='{"b": 2}', MessageAttributes={"tenant": {"DataType": "String", "StringValue": "us"}}
    )
    claim = queue.pop()
    assert claim is not None
    assert (claim.payload, claim.headers) == ({"b": 2}, {"tenant": "us"})
    sqs.create_queue(QueueName="texts")
    db.queue("texts").push("plain")
    assert received(sqs, url.replace("jobs", "texts"))[0]["Body"] == "plain"


@only("postgresql")
def test_connections_to_the_database_are_bounded(place: Place) -> None:
    """However many clients there are; one more listens."""
    named = sa.make_url(place.url).update_query_dict({"application_name": "bounded"})
    count = sa.text("select count(*) from pg_stat_activity where application_name = 'bounded'")
    with (
        connect(named.render_as_string(hide_password=False), schema=place.schema) as db,
        serving(app(db, connections=3)) as address,
        place.sa_engine().connect() as connection,
    ):
        mine = client(address)
        url = mine.create_queue(QueueName="orders")["QueueUrl"]
        ended = threading.Event()

        def work() -> None:
            while not ended.is_set():
                mine.send_message(QueueUrl=url, MessageBody="x")
                received(mine, url, MaxNumberOfMessages=10, WaitTimeSeconds=1)

        with ThreadPoolExecutor(16) as pool:
            working = [pool.submit(work) for _ in range(16)]
            try:
                most = max(connection.execute(count).scalar_one() for _ in range(200))
            finally:
                ended.set()
            for each in working:
                each.result()
        assert most <= 4
