"""What `doctor` says of subscriptions."""

from __future__ import annotations

import pytest

from tablequeue import Database
from tests.servers import only

pytestmark = only("sqlite", "postgresql")


@pytest.mark.parametrize("ordered", [False, True])
def test_a_subscription_misses_no_index(db: Database, ordered: bool) -> None:
    db.create_topic("events", groups=True).subscribe("mail", ordered=ordered)
    assert [finding for finding in db.doctor() if finding.queue] == []
