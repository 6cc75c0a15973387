"""The topics and subscriptions of the tests."""

from __future__ import annotations

from typing import Any

import pytest

from tablequeue import Backoff, Database
from tablequeue.topic import Subscription, Topic

# Three attempts and a back-off of exactly 10, 20 and 40 seconds.
OPTIONS: dict[str, Any] = {"max_attempts": 3, "backoff": Backoff(base=10, jitter=0)}


@pytest.fixture
def topic(db: Database) -> Topic:
    """The topic "events" of texts."""
    return db.create_topic("events", payload="text")


@pytest.fixture
def mail(topic: Topic) -> Subscription:
    """The subscription "mail" of that topic."""
    return topic.subscribe("mail", **OPTIONS)


@pytest.fixture
def log(topic: Topic) -> Subscription:
    """Another subscription of that topic."""
    return topic.subscribe("log", **OPTIONS)


@pytest.fixture
def ordered(db: Database) -> Subscription:
    """The ordered subscription "turns" of the topic "orders", which has groups. Push to it by `topic_of`."""
    return db.create_topic("orders", payload="text", groups=True).subscribe("turns", ordered=True, **OPTIONS)
