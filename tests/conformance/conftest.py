"""The suite that every engine must pass. Each test runs on every engine, with every design that fits it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tablequeue import Backoff, Database, Queue
from tests.callers import CALLERS, Caller
from tests.newer import NEWER
from tests.packs import PACKING
from tests.procedures import PROCEDURAL
from tests.servers import KINDS, Kind, Place, VariantKind
from tests.support import DESIGNS, designs_with


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*capabilities): run with the designs of support.py that have them all.")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every engine, and with every design that has the capabilities that the test needs."""
    needed = [capability for marker in metafunc.definition.iter_markers("needs") for capability in marker.args]
    marked = [marker.args[0] for marker in metafunc.definition.iter_markers("parametrize")]

    def is_free(name: str) -> bool:
        """Whether neither a marker nor a fixture of the module sets it."""
        fixed = hasattr(metafunc.module, name) and not needed
        return name in metafunc.fixturenames and not fixed and not any(name in names for names in marked)

    names = [name for name in ("kind", "design") if is_free(name)]
    if not names:
        return
    kinds = [*KINDS, *PROCEDURAL, *PACKING, *NEWER] if "kind" in names else [None]
    designs = designs_with(needed) if "design" in names else [None]
    file = metafunc.definition.path.stem
    rows: dict[str, list[Any]] = {}
    for kind, design in product(kinds, designs):
        if kind is None or _fits(file, kind, design):
            given = {"kind": kind, "design": design}
            rows["-".join(filter(None, (kind and _named(kind), design)))] = [given[name] for name in names]
    metafunc.parametrize(names, [*rows.values()], ids=[*rows])


# Files about verbs whose texts are the same for most designs, and the designs for which they differ.
BY_DISTINCT = {"test_alter", "test_cancel", "test_many", "test_pause"}
DISTINCT = ("fifo", "due", "groups", "fair")
# Files about claims: in these a queue with fair groups differs from one in the order of the pushes.
CLAIMING = {"test_at_most_once", "test_complete_and_claim", "test_leases", "test_order", "test_take", "test_unreadable"}


def _fits(file: str, kind: Kind, design: str | None) -> bool:
    if design == "heap" and file != "test_order" and kind.heap_is_fifo:
        return False
    if design == "fair" and file not in CLAIMING | BY_DISTINCT:
        return False
    if file in BY_DISTINCT and design not in (None, *DISTINCT):
        return False
    return not isinstance(kind, VariantKind) or kind.fits(file, design)


def _named(kind: Kind) -> str:
    return f"{kind.name}-{kind.variant}" if isinstance(kind, VariantKind) else kind.name


@pytest.fixture
def kind() -> Kind:
    """An engine, with its own verbs, with those that call the stored procedures, or with every claim packed."""
    raise AssertionError("pytest_generate_tests sets it")


@pytest.fixture
def design() -> str:
    """One of DESIGNS."""
    raise AssertionError("pytest_generate_tests sets it")


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
