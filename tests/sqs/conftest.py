"""Fixtures: `sqs` is a boto3 client of an endpoint for `db`, in both protocols; `url` a new queue there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tablequeue import Database
from tablequeue.sqs import app
from tablequeue.sqs.app import SqsApp
from tests.sqs.support import PROTOCOLS, client, serving


@pytest.fixture
def endpoint(db: Database) -> SqsApp:
    return app(db)


@pytest.fixture
def address(endpoint: SqsApp) -> Iterator[str]:
    with serving(endpoint) as url:
        yield url


@pytest.fixture(params=PROTOCOLS)
def sqs(request: pytest.FixtureRequest, address: str) -> Any:
    return client(address, request.param)


@pytest.fixture
def queue_url(sqs: Any) -> str:
    url: str = sqs.create_queue(QueueName="orders")["QueueUrl"]
    return url
