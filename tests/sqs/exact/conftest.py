"""Fixtures: one endpoint on SQLite for all tests here; `url` and `ordered` are new queues of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tablequeue import Database, connect
from tablequeue.sqs import app
from tests.sqs.support import PROTOCOLS, client, serving
from tests.sqs.test_messages import fifo

_numbers = count()


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with connect(f"sqlite:///{tmp_path_factory.mktemp('sqs') / 'work.db'}") as database:
        yield database


@pytest.fixture(scope="package")
def address(shared: Database) -> Iterator[str]:
    with serving(app(shared)) as url:
        yield url


@pytest.fixture(params=PROTOCOLS)
def either(request: pytest.FixtureRequest, address: str) -> Any:
    return client(address, request.param)


@pytest.fixture
def sqs(address: str) -> Any:
    return client(address)


@pytest.fixture
def name() -> str:
    return f"queue{next(_numbers)}"


@pytest.fixture
def url(sqs: Any, name: str) -> str:
    found: str = sqs.create_queue(QueueName=name)["QueueUrl"]
    return found


@pytest.fixture
def ordered(sqs: Any, name: str) -> str:
    return fifo(sqs, f"{name}.fifo")
