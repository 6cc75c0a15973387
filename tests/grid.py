"""Which cells of a test's grid `make test` runs, if engines are a dimension of it. `make nightly` runs the others.

SQLite, on which a test takes a tenth of the time, runs all of them, as does a SQL Server, which is there now and then.
The other servers share a cover: each pair of values is on a server, and each value on each server. A test that does not
run on SQLite keeps all of its cells. In the conformance suite, a design stands on a server for those that have the same
texts: see ALIKE in support.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

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
    for cells in grids.values():
        if any(_engine(cell) == "sqlite" for cell in cells):
            shared = [cell for cell in cells if _engine(cell) in SHARING]
            # Not all values have hashes, and equal ones of a grid are the same object.
            kept = cover([{name: id(value) for name, value in _values(cell).items()} for cell in shared])
            left += [cell for number, cell in enumerate(shared) if number not in kept]
    return left


def cover(cells: Sequence[Mapping[str, object]]) -> set[int]:
    """Return the numbers of cells that have, among them, each pair of values that any cell has."""
    pairs = [{*combinations(sorted(cell.items(), key=lambda item: item[0]), 2)} for cell in cells]
    missing = set[object]().union(*pairs)
    chosen: set[int] = set()
    while missing:
        best = max(range(len(cells)), key=lambda number: len(pairs[number] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return chosen or {*range(len(cells))}


def _values(item: pytest.Function) -> Mapping[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def _engine(item: pytest.Function) -> str | None:
    kind = _values(item).get("kind")
    return kind.name if isinstance(kind, Kind) else None
