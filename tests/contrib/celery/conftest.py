"""The database of a test of the result backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tablequeue.contrib import task_results as store
from tablequeue.contrib.kombu import store as broker
from tests.contrib.urls import url_of
from tests.servers import Place


@pytest.fixture
def url(place: Place) -> Iterator[str]:
    with url_of(place) as own:
        yield own
        for opened in store._stores.values():
            opened.runner.close()
            opened.runner.sa_engine.dispose()
        store._stores.clear()
        for one in broker._stores.values():
            one.db.close()
            one.db.engine.dispose()
        broker._stores.clear()
