"""One local Spark session for all its tests: starting one takes longer than they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tablequeue import Database, connect
from tablequeue.spark.session import local_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        # Spark's workers have the environment of the session's start: see `environment`.
        patch.setenv("TABLEQUEUE_URL", f"sqlite:///{folder / 'environment.db'}")
        session = local_session("tests", folder)
    yield session
    session.stop()


@pytest.fixture
def environment(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database that TABLEQUEUE_URL names, here and in Spark's workers."""
    url = spark.sparkContext._jvm.System.getenv("TABLEQUEUE_URL")
    monkeypatch.setenv("TABLEQUEUE_URL", url)
    with connect(url) as database:
        yield database
        for queue in database.queues():
            database.queue(queue).drop()
