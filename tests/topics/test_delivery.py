"""What comes out of a topic: every subscription gets each message, and one consumer of each subscription."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from inspect import signature
from itertools import chain, islice
from typing import Any, cast

import pytest
import sqlalchemy as sa

from tablequeue import Claim, Consumer, Database, Empty, NewMessage, Queue
from tablequeue.errors import BadInput, BadPayload
from tablequeue.ext import context_of
from tablequeue.topic import Lag, Subscription, Topic
from tests.servers import Place, only
from tests.support import at, claimed, counts, ids_of, refuses
from tests.topics import checks

pytestmark = pytest.mark.quick


def test_every_subscription_gets_every_message(topic: Topic) -> None:
    checks.check_every_subscription_gets_every_message(topic)


def test_each_message_goes_to_one_consumer(place: Place, topic: Topic, mail: Subscription) -> None:
    checks.check_one_claim_one_consumer(topic, [place.open().subscription("events/mail") for _ in range(8)])


def test_messages_come_in_order_with_all_that_was_pushed(db: Database, topic: Topic, mail: Subscription) -> None:
    first = topic.push("a", headers={"n": 1}, group="g", now=at(0))
    assert topic.push_many(["b", "c"], headers={"n": 2}, now=at(1)) == [first + 1, first + 2]
    topic.push_many([NewMessage("d", group="h", headers={"n": 3}), "e"], headers={"n": 4}, now=at(2))
    batch = mail.pop_many(10, lease=30, now=at(10))
    assert [claim.payload for claim in batch] == [*"abcde"]
    assert [claim.headers["n"] for claim in batch] == [1, 2, 2, 3, 4]
    assert [claim.group for claim in batch] == ["g", None, None, "h", None]
    assert [claim.pushed_at for claim in batch] == [at(n) for n in (0, 1, 1, 2, 2)]
    assert {(claim.popped_at, claim.lease_until, claim.attempt) for claim in batch} == {(at(10), at(40), 1)}
    assert {(claim.priority, claim.key) for claim in batch} == {(0, None)}


def test_pops_take_turns(topic: Topic, mail: Subscription) -> None:
    ids = topic.push_many([*"abcdefg"])
    assert [ids_of(mail.pop_many(n)) for n in (2, 1, 3, 5)] == [ids[:2], ids[2:3], ids[3:6], ids[6:]]
    assert mail.pop() is None
    assert mail.pop_many(5) == []


def test_the_database_has_the_clock(topic: Topic, mail: Subscription) -> None:
    topic.push("x")
    claim = claimed(mail)
    assert abs(claim.popped_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert claim.lease_until is not None
    assert claim.lease_until - claim.popped_at == timedelta(seconds=mail.definition.lease)


@pytest.mark.parametrize(
    ("payload", "values"),
    [
        ("json", [{"é": [1, 2.5, None]}, "text", 0, None, [], 10**30]),
        ("text", ["", "\u2028 é 😀 \\ \n\t'\"%s :now {x}"]),
        ("bytes", [b"", bytes(range(256)), b"\\x00\\."]),
    ],
)
@pytest.mark.parametrize("many", [1, 200])
def test_payloads_come_as_they_were_pushed(db: Database, payload: Any, values: list[Any], many: int) -> None:
    """Also by the ways for many messages."""
    topic = db.create_topic("events", payload=payload)
    mail = topic.subscribe("mail")
    topic.push_many(values * many)
    topic.push(values[0])
    assert [claim.payload for claim in mail.pop_many(10_000)] == values * many + [values[0]]


def test_a_payload_of_another_type_is_refused(topic: Topic) -> None:
    refuses(BadPayload, topic.push, b"bytes")
    refuses(BadPayload, topic.push_many, ["a", 1])
    assert topic.subscribe("mail").pop() is None


@pytest.mark.parametrize("payload", ["json", "text", "bytes"])
def test_a_payload_of_a_megabyte(db: Database, payload: Any) -> None:
    value: Any = b"\xff" * (1 << 20) if payload == "bytes" else "é\n" * (1 << 19)
    topic = db.create_topic("events", payload=payload)
    mail = topic.subscribe("mail")
    topic.push(value)
    topic.push_many([value] * 3)
    batch = mail.pop_many(10)
    assert [claim.payload == value for claim in batch] == [True] * 4
    batch[0].fail("large", retry_in=0)
    mail.complete_many(batch[1:])
    assert claimed(mail).payload == value


@pytest.mark.parametrize(
    "options", [{"delay": 1}, {"due": at(0)}, {"priority": 1}, {"key": "k"}], ids=lambda options: next(iter(options))
)
def test_options_of_queues_are_refused(topic: Topic, mail: Subscription, options: dict[str, Any]) -> None:
    refuses(BadInput, topic.push_many, ["a", NewMessage("b", **options)])
    with pytest.raises((TypeError, BadInput)):
        topic.push("a", **options)
    assert mail.pop() is None


def test_groups(db: Database, topic: Topic) -> None:
    """A topic with groups needs one for each message. Without, a message may have one."""
    grouped = db.create_topic("orders", payload="text", groups=True)
    mail = grouped.subscribe("mail")
    refuses(BadInput, grouped.push, "a")
    refuses(BadInput, grouped.push_many, ["a"])
    refuses(BadInput, grouped.push_many, ["a", NewMessage("b", group="g")])
    assert mail.pop() is None
    grouped.push("a", group="g")
    grouped.push_many(["b", NewMessage("c", group="h")], group="g")
    assert [claim.group for claim in mail.pop_many(5)] == ["g", "g", "h"]
    topic.push_many(["a", NewMessage("b", group="g")])


def test_pushes_in_a_transaction(db: Database, topic: Topic, mail: Subscription) -> None:
    with db.engine.connect() as connection:
        topic.push("lost", connection=connection)
        topic.push_many(["lost"] * 200, connection=connection)
        connection.rollback()
        topic.push("a", connection=connection)
        topic.push_many(map(str, range(200)), connection=connection)
        topic.push_many([NewMessage("b", group="g")], connection=connection)
        connection.commit()
    assert [claim.payload for claim in mail.pop_many(1000)] == ["a", *map(str, range(200)), "b"]


def test_a_subscription_has_no_verbs_that_push_take_or_move(mail: Subscription) -> None:
    """Nor is a claim a part of a caller's transaction, which would hold up all other consumers."""
    verbs = {name for name in vars(Queue) if not name.startswith("_")} - {*vars(Consumer)}
    assert verbs > {"push", "push_many", "pop_group", "take", "take_many", "result", "lost", "move", "batch"}
    assert not [verb for verb in verbs if hasattr(mail, verb)]
    assert not [verb for verb in (mail.pop, mail.pop_many) if "connection" in signature(verb).parameters]


def test_lag_and_stats(topic: Topic, mail: Subscription) -> None:
    assert mail.lag() == Lag(0, None)
    assert counts(mail) == {}
    topic.push_many([*"abcdef"], now=at(0))
    assert mail.lag().messages == 6
    assert counts(mail) == {"ready": 6}
    assert mail.stats(now=at(60)).oldest_age == 60
    batch = mail.pop_many(4, now=at(60))
    assert mail.lag().messages == 2
    assert counts(mail) == {"ready": 2, "in_progress": 4}
    batch[0].complete(now=at(60))
    assert counts(mail) == {"ready": 2, "in_progress": 3, "finished": 1}
    batch[1].fail("no", now=at(60))
    assert counts(mail) == {"ready": 2, "in_progress": 2, "scheduled": 1, "finished": 1}
    batch[2].fail("no", retry=False, now=at(60))
    assert counts(mail) == {"ready": 2, "in_progress": 1, "scheduled": 1, "dead": 1, "finished": 1}
    batch[3].complete(now=at(60))
    assert counts(mail) == {"ready": 2, "scheduled": 1, "dead": 1, "finished": 2}
    mail.complete_many(mail.pop_many(10, now=at(100)), now=at(100))
    mail.complete_many(mail.pop_many(10, now=at(100)), now=at(100))
    assert counts(mail) == {"dead": 1, "finished": 5}
    assert mail.lag() == Lag(0, None)


def test_consume_and_receive(topic: Topic, mail: Subscription) -> None:
    topic.push_many([*"abc"])
    for number, message in enumerate(mail.consume(wait=0)):
        assert message.payload == "abc"[number]
        message.complete()
    assert counts(mail) == {"finished": 3}
    refuses(Empty, mail.receive(wait=0).__enter__)
    topic.push_many([*"de"])
    with mail.receive() as message:
        assert message.payload == "d"
    with pytest.raises(ZeroDivisionError), mail.receive() as message:
        raise ZeroDivisionError
    assert counts(mail) == {"finished": 4, "scheduled": 1}


def test_what_was_prefetched_is_released(topic: Topic, mail: Subscription) -> None:
    ids = topic.push_many([*"abcdef"])
    with closing(cast(Generator[Claim], mail.consume(wait=0, prefetch=4))) as iteration:
        first, second = islice(iteration, 2)
        first.complete()
    assert counts(mail) == {"ready": 4, "in_progress": 1, "finished": 1}
    second.complete()
    rest = [*mail.pop_many(10), *mail.pop_many(10)]
    assert sorted(ids_of(rest)) == ids[2:]
    assert {claim.attempt for claim in rest} == {1}, "an unworked attempt does not count"


def test_a_waiting_consumer_gets_what_is_pushed(topic: Topic, mail: Subscription, log: Subscription) -> None:
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(lambda queue: next(queue.consume(wait=60)), queue) for queue in (mail, log)]
        topic.push("x")
        assert [each.result(60).payload for each in waiting] == ["x", "x"]


def test_threads_share_a_subscription(topic: Topic, mail: Subscription) -> None:
    ids = topic.push_many(map(str, range(400)))

    def work(_: int) -> list[int]:
        done: list[int] = []
        while batch := mail.pop_many(7):
            for claim in batch[::2]:
                claim.complete()
            mail.complete_many(batch[1::2])
            done += ids_of(batch)
        return done

    with ThreadPoolExecutor(4) as threads:
        assert sorted(chain(*threads.map(work, range(4)))) == ids
    assert counts(mail) == {"finished": 400}


@only("sqlite")
def test_what_has_left_a_range_is_read_once(place: Place, topic: Topic, mail: Subscription) -> None:
    """Measured in steps of SQLite's virtual machine: ten times the messages take ten times the steps, not a hundred.

    The whole file waits for such a statement.
    """
    table = context_of(mail).table

    def steps(number: int, operation: str) -> int:
        topic.push_many(["x"] * 2 * number)
        batch = mail.pop_many(2 * number)
        mail.complete_many(batch[:number])
        ids = json.dumps(ids_of(batch[number:]))
        token = batch[0].token
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        with closing(sqlite3.connect(str(sa.make_url(place.url).database))) as connection:
            newest = f"select max(id) from {table.table_name}__ranges"  # noqa: S608
            range_id = connection.execute(newest).fetchone()[0]
            connection.set_progress_handler(step, 1)
            params = {"token": token, "ids": ids, "id": range_id, "now": None, "max_attempts": 1, "lease": 60}
            for statement in table.statements(operation):
                connection.execute(statement, params).fetchall()
            connection.rollback()
        mail.complete_many(batch[number:])
        return count

    for operation in ("range_hold", "range_extend", "range_expire"):
        assert steps(1_000, operation) < 20 * steps(100, operation), operation


def test_twenty_thousand_messages_in_one_pop(topic: Topic, mail: Subscription) -> None:
    ids = [id for _ in range(2) for id in topic.push_many(map(str, range(10_000)))]
    batch = mail.pop_many(30_000)
    assert ids_of(batch) == ids
    batch[0].fail("no", retry=False)
    mail.complete_many(batch[1:10_000])
    mail.release_many(batch[10_000:10_010])
    mail.complete_many(batch[10_010:])
    again = mail.pop_many(30_000)
    assert ids_of(again) == ids[10_000:10_010]
    mail.complete_many(again)
    assert counts(mail) == {"finished": 19_999, "dead": 1}
