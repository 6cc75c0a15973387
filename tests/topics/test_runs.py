"""An ordered subscription has groups: several messages of one may be claimed at once."""

from __future__ import annotations

import pytest

from tablequeue import Database, NewMessage
from tablequeue.errors import BadInput
from tests.support import at, refuses

pytestmark = pytest.mark.quick


def test_an_ordered_subscription_has_runs(db: Database) -> None:
    topic = db.create_topic("events", payload="text", groups=True)
    mail = topic.subscribe("mail", ordered=True)
    topic.push_many([NewMessage(f"{group}{number}", group=group) for number in range(3) for group in "ab"])
    run = mail.pop_many(5, same_group=True)
    assert [claim.payload for claim in run] == ["a0", "a1", "a2"]
    run[0].fail("no", retry_in=0)
    mail.complete_many(run[1:])
    assert [claim.payload for claim in mail.pop_many(2, same_group=True, now=at(0))] == ["a0"]
    assert [claim.payload for claim in mail.pop_many(2, same_group=True, now=at(0))] == ["b0", "b1"]


def test_other_subscriptions_have_none(db: Database) -> None:
    mail = db.create_topic("events", payload="text").subscribe("mail")
    refuses(BadInput, mail.pop_many, 5, same_group=True)
