"""Topics where ids are given before commits: a late commit comes late, and nothing else changes its order."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from tablequeue import Database
from tablequeue.topic import Subscription, Topic
from tests.servers import Place, only

pytestmark = only("postgresql")


@pytest.fixture
def topic(db: Database) -> Topic:
    return db.create_topic("events")


@pytest.fixture
def mail(topic: Topic) -> Subscription:
    return topic.subscribe("mail")


def popped(subscription: Subscription) -> list[object]:
    return [message.payload for message in subscription.pop_many(100)]


def holes(place: Place) -> list[tuple[int, int]]:
    return [(low, high) for low, high in place.execute(f"select first_id, last_id from {place.table('events')}__holes")]  # noqa: S608


def test_what_is_pushed_after_a_commit_comes_after_it(db: Database, topic: Topic, mail: Subscription) -> None:
    with db.engine.begin() as late:
        topic.push("late", connection=late)
        topic.push("of another producer")
        assert popped(mail) == ["of another producer"]
    topic.push("after it")
    assert popped(mail) == ["late", "after it"]


def test_one_transaction_comes_in_the_order_of_its_pushes(db: Database, topic: Topic, mail: Subscription) -> None:
    with db.engine.begin() as late:
        for payload in ("one", "two", "three"):
            topic.push(payload, connection=late)
            topic.push(f"beside {payload}")
            assert popped(mail) == [f"beside {payload}"]
        topic.push("four", connection=late)
    assert popped(mail) == ["one", "two", "three", "four"]


def test_a_hole_is_kept_until_nothing_can_fill_it(db: Database, topic: Topic, mail: Subscription, place: Place) -> None:
    first, second = (db.engine.connect() for _ in range(2))
    with first, second:
        for connection in (first, second):
            topic.push_many([1, 2], connection=connection)
        topic.push("visible")
        assert popped(mail) == ["visible"]
        assert holes(place) == [(1, 4)]
        second.commit()
        assert (popped(mail), holes(place)) == ([1, 2], [(1, 2)])
        first.rollback()
        while holes(place):  # until no other transaction of the server is left that began before
            assert popped(mail) == []


def test_a_savepoint_that_was_rolled_back_leaves_a_hole(
    db: Database, topic: Topic, mail: Subscription, place: Place
) -> None:
    with db.engine.begin() as connection:
        topic.push("before", connection=connection)
        savepoint: sa.NestedTransaction = connection.begin_nested()
        topic.push("undone", connection=connection)
        savepoint.rollback()
        topic.push("after", connection=connection)
    assert popped(mail) == ["before", "after"]
    topic.push("next")
    assert popped(mail) == ["next"]
    while holes(place):
        assert popped(mail) == []
