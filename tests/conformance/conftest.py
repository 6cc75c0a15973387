"""The one suite that every engine must pass: engines times orders."""

from __future__ import annotations

import pytest

from tablequeue import Backoff, Database, Queue
from tablequeue.definition import ORDERS


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> str:
    one: str = request.param
    return one


@pytest.fixture
def queue(db: Database, order: str) -> Queue:
    """A queue of text, with three attempts and a backoff of 10, 20, 40 seconds to the letter."""
    return db.create_queue("work", order=order, payload="text", max_attempts=3, backoff=Backoff(base=10, jitter=0))
