"""What AWS does other than its pages let one expect, where the database has a part in it: on every engine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tablequeue import Database
from tests.nightly import by_night
from tests.sqs.test_messages import counts, fifo, received, refused


@pytest.mark.parametrize("batch", [False, True])
def test_after_five_minutes_a_deduplication_id_is_free_also_while_its_message_waits(
    sqs: Any, db: Database, batch: bool
) -> None:
    url = fifo(sqs)
    orders = db.queue("orders.fifo")
    for key, seconds in (("old", 301), ("young", 200)):
        orders.push(key, key=key, group=key, now=datetime.now(UTC) - timedelta(seconds=seconds))

    def send(key: str) -> str:
        entry = {"MessageBody": "again", "MessageGroupId": key, "MessageDeduplicationId": key}
        if not batch:
            return str(sqs.send_message(QueueUrl=url, **entry)["MessageId"])
        sent = sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", **entry}])
        return str(sent["Successful"][0]["MessageId"])

    again = send("old")
    assert send("old") == again, "it is taken anew"
    young = send("young")
    messages = received(sqs, url, MaxNumberOfMessages=10)
    assert [(message["Attributes"]["MessageGroupId"], message["Body"]) for message in messages] == [
        ("old", "old"),
        ("old", "again"),
        ("young", "young"),
    ]
    assert [message["MessageId"] for message in messages[1:]] == [again, young]
    assert messages[1]["Attributes"]["MessageDeduplicationId"] == "old"


@pytest.mark.parametrize("batch", [False, True])
def test_an_old_handle_changes_the_visibility_on_a_standard_queue(
    sqs: Any, db: Database, queue_url: str, batch: bool
) -> None:
    def change(message: dict[str, Any], seconds: int) -> None:
        entry = {"ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": seconds}
        if not batch:
            sqs.change_message_visibility(QueueUrl=queue_url, **entry)
        else:
            told = sqs.change_message_visibility_batch(QueueUrl=queue_url, Entries=[{"Id": "a", **entry}])
            assert [each["Id"] for each in told["Successful"]] == ["a"]

    sqs.send_message(QueueUrl=queue_url, MessageBody="x")
    (old,) = received(sqs, queue_url, VisibilityTimeout=0)
    change(old, 100)
    assert counts(sqs, queue_url) == (1, 0, 0), "of what is visible nothing changes"
    (new,) = received(sqs, queue_url, VisibilityTimeout=1)
    change(old, 100)
    (held,) = db.queue("orders").peek(state="in_progress")
    assert held.popped_at
    assert held.lease_until
    assert (held.lease_until - held.popped_at).total_seconds() >= 100, "it is invisible for longer"
    assert received(sqs, queue_url) == []
    change(old, 0)
    (again,) = received(sqs, queue_url)
    assert again["Attributes"]["ApproximateReceiveCount"] == "3"
    change(new, 100)
    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=old["ReceiptHandle"])
    assert counts(sqs, queue_url) == (0, 1, 0), "an old handle deletes nothing that another receive has"
    long = {"QueueUrl": queue_url, "ReceiptHandle": old["ReceiptHandle"], "VisibilityTimeout": 43_200}
    sqs.change_message_visibility(**{**long, "VisibilityTimeout": 1000})
    assert "beyond the limit" in refused("InvalidParameterValue", sqs.change_message_visibility, **long)
    sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=again["ReceiptHandle"])
    refused("InvalidParameterValue", sqs.change_message_visibility, **long)


def test_an_old_handle_of_a_fifo_queue_changes_nothing(sqs: Any) -> None:
    url = fifo(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
    (old,) = received(sqs, url, VisibilityTimeout=0)
    (new,) = received(sqs, url)
    options = {"QueueUrl": url, "ReceiptHandle": old["ReceiptHandle"], "VisibilityTimeout": 0}
    assert "The receipt handle has expired." in refused(
        "InvalidParameterValue", sqs.change_message_visibility, **options
    )
    assert counts(sqs, url) == (0, 1, 0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=new["ReceiptHandle"])


def send_all(sqs: Any, url: str, group: str, bodies: str) -> None:
    entries = [{"Id": body, "MessageBody": body, "MessageGroupId": group} for body in bodies]
    assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == len(bodies)


def bodies(messages: list[dict[str, Any]]) -> str:
    return "".join(message["Body"] for message in messages)


@pytest.mark.parametrize("timeout", by_night([False, True], False.__eq__))
def test_a_message_of_a_group_comes_back_although_later_ones_are_in_flight(sqs: Any, timeout: bool) -> None:
    url = fifo(sqs)

    def show(message: dict[str, Any]) -> None:
        """Make a message visible, at once or when its visibility timeout is over."""
        options = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
        sqs.change_message_visibility(**options, VisibilityTimeout=int(timeout))

    send_all(sqs, url, "g", "abcde")
    a, b, c, d = received(sqs, url, MaxNumberOfMessages=4)
    show(b)
    assert received(sqs, url, MaxNumberOfMessages=10, WaitTimeSeconds=2 * timeout) == [], "a is in flight"
    show(a)
    ab = received(sqs, url, MaxNumberOfMessages=10, WaitTimeSeconds=5)
    assert bodies(ab) == "ab", "c is in flight, and closes what is behind it"
    for message in (ab[0], d):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert received(sqs, url, MaxNumberOfMessages=10) == []
    show(ab[1])
    (again,) = received(sqs, url, WaitTimeSeconds=5)
    assert (again["Body"], again["Attributes"]["ApproximateReceiveCount"]) == ("b", "3")
    for message in (again, c):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert bodies(received(sqs, url, MaxNumberOfMessages=10)) == "e"


def test_what_is_visible_again_comes_beside_other_groups(sqs: Any) -> None:
    url = fifo(sqs)
    send_all(sqs, url, "g", "abc")
    first = received(sqs, url, MaxNumberOfMessages=2)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first[0]["ReceiptHandle"], VisibilityTimeout=0)
    send_all(sqs, url, "h", "x")
    assert sorted(bodies(received(sqs, url, MaxNumberOfMessages=10))) == ["a", "x"], "and other groups go on"
    assert received(sqs, url, MaxNumberOfMessages=10) == []
