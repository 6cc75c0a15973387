"""Topics and subscriptions as such: their definitions, their names, and what happens when they are made and dropped."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest

from tablequeue import Backoff, Consumer, Database, Queue, TablequeueError
from tablequeue.errors import BadDefinition, BadInput, BadName, QueueDiffers, QueueNotFound
from tablequeue.ext import context_of
from tablequeue.topic import Subscription, Topic
from tests.crowd import answer, processes, started
from tests.servers import Place, only
from tests.support import claimed, counts, ids_of, refuses
from tests.topics import work

pytestmark = pytest.mark.quick


def test_what_is_there_is_opened(db: Database, topic: Topic, mail: Subscription, log: Subscription) -> None:
    assert db.topics() == ["events"]
    assert db.queues() == []
    assert topic.subscriptions() == ["log", "mail"]
    assert db.create_topic("events", payload="text").definition == db.topic("events").definition
    id = topic.push("x")
    same = topic.subscribe("mail", max_attempts=3, backoff=Backoff(base=10, jitter=0), start="end")
    assert same.definition == topic.subscription("mail").definition == mail.definition
    assert claimed(same).id == id, "the start is that of the first time"
    assert claimed(db.subscription("events/log")).id == id


@pytest.mark.parametrize(
    "options", [{"payload": "json"}, {"groups": True}, {"keep": 60}, {"keep": "consumed"}], ids=str
)
def test_another_definition_of_the_topic(db: Database, topic: Topic, options: dict[str, Any]) -> None:
    wanted: dict[str, Any] = {"payload": "text"} | options
    error = refuses(QueueDiffers, db.create_topic, "events", **wanted)
    assert next(iter(options)) in error.cause


@pytest.mark.parametrize(
    "options", [{"lease": 5}, {"max_attempts": 9}, {"backoff": Backoff()}, {"ordered": True}], ids=str
)
def test_another_definition_of_the_subscription(db: Database, options: dict[str, Any]) -> None:
    topic = db.create_topic("orders", groups=True)
    there: dict[str, Any] = {"lease": timedelta(seconds=7), "max_attempts": 3, "backoff": Backoff(base=10)}
    topic.subscribe("mail", **there)
    topic.subscribe("mail", **there | {"lease": 7})
    refuses(QueueDiffers, topic.subscribe, "mail", **(there | options))


def test_wrong_options(db: Database, topic: Topic) -> None:
    refuses(BadInput, db.create_topic, "new", order="lifo")
    refuses(BadInput, topic.subscribe, "new", history="none")
    refuses(BadDefinition, db.create_topic, "new", payload="xml")
    refuses(BadDefinition, db.create_topic, "new", keep="never")
    refuses(BadDefinition, db.create_topic, "new", keep=0)
    refuses(BadDefinition, topic.subscribe, "new", lease=0)
    refuses(BadDefinition, topic.subscribe, "new", max_attempts=0)
    assert db.topics() == ["events"]
    assert topic.subscriptions() == []


def test_one_name_is_one_thing(db: Database, topic: Topic, mail: Subscription) -> None:
    db.create_queue("work")
    refuses(QueueDiffers, db.create_queue, "events")
    refuses(QueueDiffers, db.create_topic, "work")
    refuses(QueueNotFound, db.queue, "events")
    refuses(QueueNotFound, db.topic, "work")
    refuses((QueueNotFound, BadName), db.topic, "events/mail")  # type: ignore[arg-type]
    refuses(QueueNotFound, db.queue, "work/mail")
    assert "'events'" in refuses(QueueNotFound, db.queue, "events/mail").remedy, "its topic, to push to"
    assert refuses(QueueNotFound, db.subscription, "work").remedy == "Open it with queue(), or name a subscription."
    assert "'events/mail'" in refuses(QueueNotFound, db.consumer, "events").remedy
    assert [type(db.consumer(name)) for name in ("work", "events/mail")] == [Queue, Subscription]


@pytest.mark.parametrize("name", ["", " a", "a\n", "a/b", "../x", "..", "\ud800", "a" * 256, 5, None])
def test_wrong_names(db: Database, topic: Topic, name: Any) -> None:
    refuses(BadName, db.create_topic, name)
    refuses(BadName, topic.subscribe, name)
    refuses((BadName, QueueNotFound), topic.subscription, name)  # type: ignore[arg-type]
    refuses((BadName, QueueNotFound), db.topic, name)  # type: ignore[arg-type]


def test_what_is_not_there(db: Database, topic: Topic, mail: Subscription) -> None:
    assert "'events'" in refuses(QueueNotFound, db.topic, "event").remedy
    assert "mail" in refuses(QueueNotFound, topic.subscription, "mal").remedy
    refuses(QueueNotFound, db.queue, "events/none")
    refuses(QueueNotFound, db.queue, "none/mail")


def test_any_printable_name(db: Database) -> None:
    topic = db.create_topic("Événements '☃' 100%", payload="text")
    topic.subscribe("celery@host.pidbox")
    longest = 255 - len(topic.name) - 1
    topic.subscribe("s" * longest)
    refuses(BadName, topic.subscribe, "s" * (longest + 1))
    topic.push("x")
    assert topic.subscriptions() == ["celery@host.pidbox", "s" * longest]
    for name in db.subscriptions():
        assert claimed(db.subscription(name)).payload == "x"
    db.topic("Événements '☃' 100%").drop()
    assert db.topics() == db.subscriptions() == []


def test_names_that_meet(db: Database) -> None:
    """No two of them share a table, whatever their names have in common."""
    queues = [
        db.create_queue(name, payload="text") for name in ("a__s1", "a__runs", "a_s1", "a__s1__ranges", "s1", "b")
    ]
    topics = [db.create_topic(name, payload="text") for name in ("a", "a_", "a__s2", "a_history", "s" * 40, "s" * 41)]
    subscriptions = [topic.subscribe(name) for topic in topics for name in ("s1", "runs", "a", "s" * 48)]
    for queue in queues:
        queue.push(queue.name)
    for topic in topics:
        topic.push(topic.name)
    consumers: list[Consumer] = [*queues, *subscriptions]
    for each in consumers:
        assert [claim.payload for claim in each.pop_many(10)] == [each.name.partition("/")[0]]
    for claim in [claim for each in subscriptions for claim in each.pop_many(10)]:
        claim.fail("no", retry=False)
    contexts = [*map(context_of, consumers), *map(context_of, topics)]
    tables = [each.table.table_name for each in contexts]
    assert len({*tables}) == len(tables)
    topics[0].drop()
    assert db.topics() == sorted(topic.name for topic in topics[1:])
    assert [queue.push("x") > 0 for queue in queues]


def test_many_subscriptions_come_and_go(db: Database, topic: Topic) -> None:
    for number in range(4):
        made = [topic.subscribe(f"s{n}") for n in range(3)]
        topic.push("x")
        assert [len(each.pop_many(100)) for each in made] == [number + 1] * 3
        for each in made:
            each.drop()
    assert topic.subscriptions() == []


def test_a_drop_of_one_leaves_the_others(db: Database, topic: Topic, mail: Subscription, log: Subscription) -> None:
    topic.push_many([*"ab"])
    claim = claimed(mail)
    db.subscription("events/mail").drop()
    refuses(QueueNotFound, mail.pop)
    refuses(QueueNotFound, claim.fail, "no")
    refuses(QueueNotFound, topic.subscription, "mail")
    assert len(log.pop_many(10)) == 2
    again = topic.subscribe("mail")
    assert len(again.pop_many(10)) == 2


def test_a_topic_made_again_has_nothing_of_the_old_one(db: Database, topic: Topic, mail: Subscription) -> None:
    topic.push_many([*"ab"])
    mail.pop()
    topic.drop()
    assert db.topics() == []
    new = db.create_topic("events", payload="text")
    assert new.subscriptions() == []
    sub = new.subscribe("mail")
    assert sub.pop() is None
    assert counts(sub) == {}
    new.push("c")
    assert claimed(sub).payload == "c"


def test_a_drop_while_it_is_in_use(place: Place, topic: Topic, mail: Subscription) -> None:
    topic.push_many(map(str, range(500)))
    begun = Barrier(4, timeout=60)

    def consume(_: int) -> type[BaseException]:
        queue, producer = place.open().subscription("events/mail"), place.open().topic("events")
        begun.wait()
        try:
            while True:
                for claim in queue.pop_many(3):
                    claim.complete()
                producer.push("x")
        except TablequeueError as error:
            return type(error)

    with ThreadPoolExecutor(3) as threads:
        ends = threads.map(consume, range(3))
        begun.wait()
        topic.drop()
        assert {*ends} == {QueueNotFound}


@pytest.mark.parametrize("subscribes", [False, True], ids=["topic", "subscription"])
def test_many_make_it_at_once(place: Place, subscribes: bool) -> None:
    """Processes: one makes it, and the others find it."""
    if subscribes:
        place.open().create_topic("events", payload="text")
    number = 6
    with processes.Manager() as manager:
        barrier = manager.Barrier(number)
        with started(number, work.create, lambda n: (place, subscribes, barrier)) as pipes:
            ids = sorted(answer(pipe) for pipe in pipes)
    db = place.open()
    assert db.topics() == ["events"]
    assert db.topic("events").subscriptions() == (["mail"] if subscribes else [])
    mail = db.topic("events").subscribe("mail")
    assert sorted(ids_of(mail.pop_many(100))) == ids
    assert len(ids) == number


def test_threads_subscribe_at_once(topic: Topic) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda n: topic.subscribe(f"s{n % 4}"), range(8)))
    assert topic.subscriptions() == ["s0", "s1", "s2", "s3"]
    topic.push("x")
    assert sum(len(each.pop_many(5)) for each in made) == 4


@only("postgresql")
def test_a_schema(place: Place) -> None:
    """Topics of one name in two schemas have nothing in common."""
    other = Place(place.url, f"{place.schema}_other")
    try:
        topics = [each.open().create_topic("events", payload="text") for each in (place, other)]
        mails = [topic.subscribe("mail") for topic in topics]
        topics[0].push_many([*"abc"])
        topics[1].push("d")
        assert [[claim.payload for claim in mail.pop_many(10)] for mail in mails] == [[*"abc"], ["d"]]
        topics[0].drop()
        topics[1].push("e")
        assert claimed(mails[1]).payload == "e"
    finally:
        place.execute(f"drop schema {other.schema} cascade")
        other.close()
