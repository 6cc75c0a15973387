"""The suite that every engine must pass. Each test runs on every engine, with every design that fits it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tablequeue import Backoff, Database, Queue
from tests.callers import CALLERS, Caller
from tests.newer import NEWER
from tests.procedures import PROCEDURAL
from tests.servers import KINDS, Kind, Place, VariantKind
from tests.support import ALIKE, CAPABILITIES, DESIGNS

# What the marker `designs` may say. Without it a test runs with all designs but `fair`, and `heap` where it differs.
SCOPES = (
    "claims",  # also with `fair`, which differs in the order of its claims
    "distinct",  # with DISTINCT only
    "order",  # with all designs, on servers and changed engines too
)
# The texts of most verbs that are not about claims are the same for the other designs.
DISTINCT = {"fifo", "due", "groups", "fair"}
# For each test the reasons, and the engines and designs with which it does not run.
LEFT_OUT = pytest.StashKey[dict[str, dict[str, list[str]]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--left-out", action="store_true", help="with --collect-only: say why a test is left out where")


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "needs(*capabilities): run with the designs of support.py that have them all.",
        f"designs(scope): run with other designs than most tests: {', '.join(SCOPES)}.",
        "variants(*names): run also on these changed engines: procedures, or newer, which is PostgreSQL 18.",
    ):
        config.addinivalue_line("markers", line)
    config.stash[LEFT_OUT] = {}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.option.left_out:
        for test, reasons in terminalreporter.config.stash[LEFT_OUT].items():
            lines = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
            terminalreporter.write_line("\n  ".join([test, *lines]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every engine, and with every design that its markers leave."""
    marked = [marker.args[0] for marker in metafunc.definition.iter_markers("parametrize")]
    needed = _marked(metafunc, "needs")

    def is_free(name: str) -> bool:
        """Whether neither a marker nor a fixture of the module sets it."""
        fixed = hasattr(metafunc.module, name) and not needed
        return name in metafunc.fixturenames and not fixed and not any(name in names for names in marked)

    names = [name for name in ("kind", "design") if is_free(name)]
    if not names:
        return
    kinds = [*KINDS, *PROCEDURAL, *NEWER] if "kind" in names else [None]
    designs = [*DESIGNS] if "design" in names else [None]
    rows: dict[str, Any] = {}
    left_out = metafunc.config.stash[LEFT_OUT].setdefault(metafunc.definition.nodeid, {})
    nightly = metafunc.config.option.nightly
    for kind in kinds:
        reasons = {design: _left_out(metafunc, kind, design) for design in designs}
        others = _stood_for(metafunc, kind, [design for design in designs if reasons[design] is None])
        for design, reason in reasons.items():
            name = "-".join(filter(None, (kind and _named(kind), design)))
            if design in others and not nightly:
                reason = "on a server another design has the same texts; `make nightly` runs it"
            if reason is None:
                given = {"kind": kind, "design": design}
                marks = [pytest.mark.nightly] if design in others else []
                rows[name] = pytest.param(*(given[name] for name in names), marks=marks)
            else:
                left_out.setdefault(reason, []).append(name)
    metafunc.parametrize(names, [*rows.values()], ids=[*rows])


def _stood_for(metafunc: pytest.Metafunc, kind: Kind | None, designs: Sequence[str | None]) -> set[str | None]:
    """Return those of the designs for which another one stands on this engine, a server: their texts are the same."""
    if kind is None or not kind.needs_server or _scope(metafunc) == "order":
        return set()
    standing: dict[str | None, str | None] = {}
    for design in designs:
        like = ALIKE.get(design or "", design)
        standing.setdefault(like, like if like in designs else design)
    return {*designs} - {*standing.values()}


def _scope(metafunc: pytest.Metafunc) -> str | None:
    return next(iter(_marked(metafunc, "designs")), None)


def _marked(metafunc: pytest.Metafunc, marker: str) -> list[str]:
    return [word for found in metafunc.definition.iter_markers(marker) for word in found.args]


def _left_out(metafunc: pytest.Metafunc, kind: Kind | None, design: str | None) -> str | None:
    """Say why the test does not run on this engine with this design. None if it does."""
    if isinstance(kind, VariantKind) and kind.variant not in _marked(metafunc, "variants"):
        return f"it is not marked variants({kind.variant!r})"
    if design is None:
        return None
    for capability in _marked(metafunc, "needs"):
        if design not in CAPABILITIES[capability]:
            return f"it needs {capability!r}, which this design has not"
    if kind is None:
        return None
    scope = _scope(metafunc)
    assert scope is None or scope in SCOPES, f"{scope!r} is none of {SCOPES}"
    if scope == "distinct" and design not in DISTINCT:
        return "it is marked designs('distinct'): the SQL is that of another design"
    if scope != "order" and design == "heap" and kind.heap_is_fifo:
        return "a heap is a FIFO queue on this engine, unless it is marked designs('order')"
    if design == "fair" and scope is None:
        return "a fair queue differs in the order of its claims, and it is not marked designs('claims')"
    if scope != "order" and isinstance(kind, VariantKind) and design not in kind.designs:
        return f"here {' and '.join(sorted(kind.designs))} are enough, unless it is marked designs('order')"
    return None


def _named(kind: Kind) -> str:
    return f"{kind.name}-{kind.variant}" if isinstance(kind, VariantKind) else kind.name


@pytest.fixture
def kind() -> Kind:
    """An engine, with its own verbs, or with those that call the stored procedures."""
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
