"""The plugin of pytest: a database of its own for each test. It imports the library when a test asks for it.

    pytest --tablequeue-url postgresql+psycopg://user@host/database

The same URL may be `tablequeue_url` in the configuration of pytest, or `TABLEQUEUE_TEST_URL` in the environment. Of
several the first one counts, in this order. Without one, each test has a SQLite file, on Linux in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tablequeue.database import Database
    from tablequeue.testing.clock import Clock

VARIABLE = "TABLEQUEUE_TEST_URL"
_HELP = "the database in which each test that asks for queues gets a schema of its own (SQLite files if not given)"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tablequeue").addoption("--tablequeue-url", metavar="URL", help=_HELP)
    parser.addini("tablequeue_url", _HELP)


@pytest.fixture
def tablequeue_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """The URL of an empty database, which only this test has; see `tablequeue.testing.temporary_database`."""
    from tablequeue.testing.databases import temporary_database

    config = pytestconfig
    given = config.getoption("--tablequeue-url") or config.getini("tablequeue_url") or os.environ.get(VARIABLE)
    with temporary_database(given) as url:
        yield url


@pytest.fixture
def tablequeue_database(tablequeue_url: str) -> Iterator[Database]:
    """A Database without queues, which only this test has. The application may open more connections by its URL."""
    from tablequeue.database import connect

    with connect(tablequeue_url) as database:
        try:
            yield database
        finally:
            database.engine.dispose()


@pytest.fixture
def tablequeue_clock() -> Iterator[Clock]:
    """A clock that moves leases, delays and schedules, until the end of the test; see `tablequeue.testing.Clock`."""
    from tablequeue.testing.clock import Clock

    with Clock() as clock:
        yield clock
