"""Streams and staged writes are tested on the engines that have them; `tablequeue.arrow` says which have not."""

from __future__ import annotations

import pytest

from tablequeue.engines.streams import StreamingEngine
from tests.servers import KINDS, Kind


@pytest.fixture(
    params=[kind for kind in KINDS if issubclass(kind.engine_class, StreamingEngine)], ids=lambda kind: kind.name
)
def kind(request: pytest.FixtureRequest) -> Kind:
    one: Kind = request.param
    return one
