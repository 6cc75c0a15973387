"""Cancels and reschedules of a subscription: detached messages only."""

from __future__ import annotations

import pytest

from tablequeue import Cancellation, Database, NewMessage
from tablequeue.errors import BadInput
from tablequeue.topic import Subscription, Topic
from tests.support import at, claimed, found, ids_of, refuses

pytestmark = pytest.mark.quick


def test_messages_apart_are_cancelled_for_this_subscription(
    topic: Topic, mail: Subscription, log: Subscription
) -> None:
    first, second = topic.push_many([*"ab"])
    for claim in mail.pop_many(2, now=at(0)):
        claim.fail("why", now=at(0))
    assert mail.cancel(first) == Cancellation(cancelled=(first,))
    message = mail.find(first)
    assert message is not None
    assert message.state == "cancelled"
    again = claimed(mail, now=at(100))
    assert again.id == second
    assert mail.cancel(second).in_progress == (second,)
    assert again.cancelled
    assert again.fail("stopped", now=at(100)) == "cancelled"
    assert mail.pop(now=at(1000)) is None
    assert ids_of(log.pop_many(2)) == [first, second]


def test_messages_of_the_log_are_refused(topic: Topic, mail: Subscription) -> None:
    first, second = topic.push_many([*"ab"])
    claim = claimed(mail)
    assert claim.id == first
    for id in (first, second):
        assert "log" in refuses(BadInput, mail.cancel, id).cause
        assert "log" in refuses(BadInput, mail.reschedule, id, delay=5).cause
    assert not claim.cancelled
    assert mail.cancel(lambda message: True) == Cancellation()
    claim.complete()
    assert mail.cancel(first) == Cancellation(unknown=(first,))


def test_a_message_apart_is_rescheduled(topic: Topic, mail: Subscription) -> None:
    id = topic.push("a")
    claimed(mail, now=at(0)).fail("why", retry_in=1000, now=at(0))
    mail.reschedule(id, delay=5, now=at(1))
    assert found(mail, id).due_at == at(6)
    assert claimed(mail, now=at(6)).id == id


def test_a_group_of_an_ordered_subscription_goes_on(db: Database, ordered: Subscription) -> None:
    first, second = db.topic("orders").push_many([NewMessage("a", group="x"), NewMessage("b", group="x")])
    claim = claimed(ordered)
    assert claim.id == first
    ordered.cancel(first)
    claim.fail("stopped")
    assert claimed(ordered).id == second
