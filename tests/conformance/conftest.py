"""The suite that every engine must pass. Each test runs on every engine, with every design that fits it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tablequeue import Backoff, Database, Queue
from tests.callers import CALLERS, Caller
from tests.packs import PACKING
from tests.procedures import PROCEDURAL
from tests.servers import KINDS, Kind, Place, VariantKind
from tests.support import DESIGNS, designs_with

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*capabilities): run with the designs of support.py that have them all.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a test only with the designs that have what it needs."""
    fit: list[pytest.Item] = []
    unfit: list[pytest.Item] = []
    for item in items:
        needed = [name for marker in item.iter_markers("needs") for name in marker.args]
        called = isinstance(item, pytest.Function) and hasattr(item, "callspec")
        params: dict[str, Any] = item.callspec.params if called else {}  # type: ignore[attr-defined]
        fits = params.get("design") in (None, *designs_with(needed))
        if params.get("design") == "heap" and item.path.parent == HERE and item.path.stem != "test_order":
            fits = fits and not params["kind"].heap_is_fifo
        if isinstance(kind := params.get("kind"), VariantKind):
            fits = fits and kind.fits(item.path.stem, params.get("design"))
        (fit if fits else unfit).append(item)
    items[:] = fit
    config.hook.pytest_deselected(items=unfit)


def _named(kind: Kind) -> str:
    return f"{kind.name}-{kind.variant}" if isinstance(kind, VariantKind) else kind.name


@pytest.fixture(params=[*KINDS, *PROCEDURAL, *PACKING], ids=_named)
def kind(request: pytest.FixtureRequest) -> Kind:
    """An engine: as it is, with verbs that call the stored procedures, or with every claim packed."""
    one: Kind = request.param
    return one


@pytest.fixture(params=DESIGNS)
def design(request: pytest.FixtureRequest) -> str:
    one: str = request.param
    return one


@pytest.fixture
def options(design: str) -> dict[str, Any]:
    """Text payloads, three attempts and a back-off of exactly 10, 20 and 40 seconds."""
    return DESIGNS[design] | {"payload": "text", "max_attempts": 3, "backoff": Backoff(base=10, jitter=0)}


@pytest.fixture
def queue(db: Database, options: dict[str, Any]) -> Queue:
    """The queue "work" with the current design and `options`."""
    return db.create_queue("work", **options)


@pytest.fixture(params=CALLERS.values(), ids=tuple(CALLERS))
def caller(request: pytest.FixtureRequest, place: Place, kind: Kind) -> Iterator[Caller]:
    """A transaction of the caller, in each form that `connection=` takes."""
    yield from request.param(place, kind)
