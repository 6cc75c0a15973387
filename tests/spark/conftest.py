"""One local Spark session for all its tests: starting one takes longer than they do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tablequeue.spark.session import local_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = local_session("tests", tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
