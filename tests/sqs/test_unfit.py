"""Messages of other programs that no client of SQS could read: the messages behind them are received."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import ALL, Database, Queue
from tablequeue.ext import context_of
from tablequeue.sqs import messages, receiving
from tests.servers import Place, only
from tests.sqs.support import client
from tests.sqs.test_messages import received, refused

BOTH = only("sqlite", "postgresql")
LONE = '{"title": "party \\ud83c"}'
"""Half an emoji, as JavaScript writes it when it cuts a text."""
MANY = {"MaxNumberOfMessages": 10}


def written(place: Place, queue: Queue, id: int, **values: str) -> None:
    """Change columns of a message by SQL, which takes what `push` refuses."""
    schema = f"{place.schema}." if place.schema else ""
    cast = "cast(:text as json)" if place.schema else ":text"
    with place.sa_engine().begin() as connection:
        for column, text in values.items():
            statement = f"update {schema}{context_of(queue).table.table_name} set {column} = {cast} where id = :id"  # noqa: S608
            connection.execute(sa.text(statement), {"text": text, "id": id})


def url_of(sqs: Any, name: str) -> str:
    url: str = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    return url


@BOTH
def test_half_an_emoji_in_json_is_received_as_it_was_written(sqs: Any, place: Place, db: Database) -> None:
    queue = db.create_queue("events")
    written(place, queue, queue.push({}), payload=LONE)
    queue.push({"emoji": "\U0001f389", "no characters": "\ufffe\uffff"})
    bodies = [message["Body"] for message in received(sqs, url_of(sqs, "events"), **MANY)]
    assert bodies[0] == LONE
    assert bodies[1] == '{"emoji": "\\ud83c\\udf89", "no characters": "\\ufffe\\uffff"}'
    assert len(bodies) == 2


@BOTH
def test_headers_that_no_attribute_can_be_are_set_apart(sqs: Any, place: Place, db: Database) -> None:
    queue = db.create_queue("events")
    written(place, queue, queue.push(1), headers='{"a": "\\ud83c"}')
    written(place, queue, queue.push(2), headers='{"a": {"DataType": "Binary", "BinaryValue": "a"}}')
    queue.push(3)
    assert [message["Body"] for message in received(sqs, url_of(sqs, "events"), **MANY)] == ["3"]
    assert [letter.payload for letter in queue.dead()] == [1, 2]
    assert all("cannot be received as a message of SQS" in letter.errors[-1].error for letter in queue.dead())


def check_control_characters(address: str, db: Database) -> None:
    """A client that reads XML gets what XML can have, and the rest is set apart; one that reads JSON gets all."""
    queue = db.create_queue("lines", payload="text")
    by_xml, by_json = client(address, "query"), client(address, "json")
    url = url_of(by_json, "lines")
    for text in ("\x1b[31mred", "one", "\uffff", "two"):
        queue.push(text)
    queue.push("three", headers={"color": "\x1b"})
    assert received(by_xml, url, VisibilityTimeout=0)[0]["Body"] == "one", "the first one is set apart"
    assert [message["Body"] for message in received(by_xml, url, **MANY)] == ["one", "two"]
    assert [letter.payload for letter in queue.dead()] == ["\x1b[31mred", "\uffff", "three"]
    assert "U+001B" in queue.dead()[0].errors[-1].error
    assert received(by_xml, url) == []
    queue.redrive(ALL)
    assert [m["Body"] for m in received(by_json, url, **MANY)] == ["\x1b[31mred", "\uffff", "three"]


def test_control_characters_are_set_apart_in_xml(address: str, db: Database) -> None:
    check_control_characters(address, db)


@only("sqlite")
def test_a_mutant_that_writes_any_character_is_caught(
    address: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "check_xml", lambda value: None)
    with pytest.raises(Exception, match=r"invalid XML|not well-formed"):
        check_control_characters(address, db)


@only("sqlite")
def test_a_mutant_that_gives_back_what_it_cannot_show_is_caught(
    address: str, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "UNFIT", ())
    with pytest.raises(Exception, match="InternalFailure"):
        check_control_characters(address, db)


def test_a_group_goes_on_behind_a_message_that_is_set_apart(address: str, db: Database) -> None:
    sqs = client(address, "query")
    url = sqs.create_queue(QueueName="a.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    queue = db.queue("a.fifo")
    queue.push("\x01", group="g", key="1")
    sqs.send_message(QueueUrl=url, MessageBody="next", MessageGroupId="g", MessageDeduplicationId="2")
    (message,) = received(sqs, url, ReceiveRequestAttemptId="x", WaitTimeSeconds=1)
    assert message["Body"] == "next"
    assert received(sqs, url, ReceiveRequestAttemptId="x")[0]["MessageId"] == message["MessageId"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_what_sqs_refuses_is_refused(sqs: Any, queue_url: str) -> None:
    words = refused("InvalidMessageContents", sqs.send_message, QueueUrl=queue_url, MessageBody="\ufffe")
    assert "#x20 to #xD7FF" in words
    refused("InvalidParameterValue", sqs.tag_queue, QueueUrl=queue_url, Tags={"team": "\ufffe"})
    refused("InvalidParameterValue", sqs.create_queue, QueueName="b", tags={"\ufffe": "red"})
