"""The counters of a process agree with what the queue says."""

from __future__ import annotations

import pytest

from tablequeue import Database
from tests import checks

pytestmark = pytest.mark.quick


def test_each_message_is_counted_once(db: Database) -> None:
    checks.check_counters(db)
