"""Which cells of a test's grid `make test` runs, if engines are a dimension of it. `make nightly` runs the others.

SQLite, on which a test takes a tenth of the time, runs all of them, as does a SQL Server, which is there now and then.
The other servers take turns, and so do their variants: each value of the other dimensions is on one of them, each pair
of these values too, and each server has its share. The server that begins differs from test to test, so over the suite
each server has each value. A test that does not run on SQLite keeps all of its cells. In the conformance suite, a
design stands on a server for those that have the same texts: see ALIKE in support.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from zlib import crc32

import pytest

from tests.servers import Kind

# The engines that share a cover.
SHARING = {"postgresql", "mariadb"}


def outside(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that are left to `make nightly`."""
    grids: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and _engine(item) and item.get_closest_marker("nightly") is None:
            grids.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: list[pytest.Item] = []
    for test, cells in grids.items():
        if any(_engine(cell) == "sqlite" for cell in cells):
            shared: dict[str, list[pytest.Function]] = {}
            for cell in cells:
                if _engine(cell) in SHARING:
                    shared.setdefault(getattr(_values(cell)["kind"], "variant", ""), []).append(cell)
            for sharing in shared.values():
                # Not all values have hashes, and equal ones of a grid are the same object.
                numbers = [{name: id(value) for name, value in _values(cell).items()} for cell in sharing]
                kept = cover(numbers, begins=crc32(test.encode()))
                left += [cell for number, cell in enumerate(sharing) if number not in kept]
    return left


def cover(cells: Sequence[Mapping[str, object]], begins: int = 0) -> set[int]:
    """Return the numbers of cells that have, among them, each kind, and each value and pair of values of the others.

    Kinds take turns, and `begins` says which one begins.
    """
    kinds = [*dict.fromkeys(cell["kind"] for cell in cells)]
    turns = {kind: (number + begins) % len(kinds) for number, kind in enumerate(kinds)}
    needs = [{*combinations(cell.items(), 1), *_pairs_of_others(cell)} for cell in cells]
    missing = set[object]().union(*needs)
    chosen: set[int] = set()
    used = Counter[object]()

    def gain(number: int) -> tuple[int, int, int]:
        kind = cells[number]["kind"]
        return len(needs[number] & missing), -used[kind], turns[kind]

    while missing:
        best = max(range(len(cells)), key=gain)
        chosen.add(best)
        used[cells[best]["kind"]] += 1
        missing -= needs[best]
    return chosen


def _pairs_of_others(cell: Mapping[str, object]) -> Iterable[object]:
    return combinations(sorted((item for item in cell.items() if item[0] != "kind"), key=lambda item: item[0]), 2)


def _values(item: pytest.Function) -> Mapping[str, object]:
    """Return the values of a cell. The one that has the engine is its "kind"."""
    values = item.callspec.params if hasattr(item, "callspec") else {}
    return {"kind" if _kind(value) else name: value for name, value in values.items()}


def _engine(item: pytest.Function) -> str | None:
    kind = _kind(_values(item).get("kind"))
    return kind.name if kind else None


def _kind(value: object) -> Kind | None:
    """Return the engine of a value, which may be a tuple of an engine and one of its drivers."""
    first = value[0] if isinstance(value, tuple) and value else value
    return first if isinstance(first, Kind) else None
