"""The cells that `make test` leaves to `make nightly` have nothing of their own."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations, product

import pytest
import sqlalchemy as sa

from tablequeue.engines import ENGINES, engine_class
from tablequeue.engines.texts import operations_of
from tablequeue.model.definition import Definition
from tests.grid import cover
from tests.rendering import rendered
from tests.support import ALIKE, DESIGNS

pytestmark = pytest.mark.quick

# They depend on the order of the claims, which tests with designs("order") judge.
OF_THE_ORDER = r".*claim.*|take|until_next|move|create(_due|_fair|_priority)?"


@pytest.mark.parametrize("engine", ENGINES)
def test_designs_that_are_alike_have_the_same_texts(engine: str) -> None:
    shown = engine_class(engine)(sa.URL.create(engine).get_dialect()())
    tables = {design: shown.table("work", Definition(**options)) for design, options in DESIGNS.items()}
    for operation in operations_of(engine):
        if re.fullmatch(OF_THE_ORDER, operation):
            continue
        for design, other in ALIKE.items():
            assert rendered(shown, operation, tables[design]) == rendered(shown, operation, tables[other]), operation


@pytest.mark.parametrize("begins", [0, 1])
@pytest.mark.parametrize("sizes", [(2, 7), (2, 4, 5), (2, 2, 3, 5), (3, 7, 7)], ids=str)
def test_kinds_take_turns_and_each_pair_of_the_others_is_there(sizes: tuple[int, ...], begins: int) -> None:
    names = ["kind", *"abc"]
    cells = [dict(zip(names, values, strict=False)) for values in product(*map(range, sizes))]
    chosen = [cells[number] for number in cover(cells, begins)]
    for size in (1, 2):
        assert _combined(chosen, size) == _combined(cells, size)
    shares = Counter(cell["kind"] for cell in chosen)
    assert max(shares.values()) - min(shares.values()) <= 1
    assert len(chosen) < len(cells)


def _combined(cells: list[dict[str, int]], size: int) -> set[object]:
    """Return the values of all dimensions, or the pairs of values of all but the kind."""
    items = [[item for item in cell.items() if size == 1 or item[0] != "kind"] for cell in cells]
    return {found for each in items for found in combinations(each, size)}


def test_over_many_tests_each_kind_has_each_value() -> None:
    cells = [{"kind": kind, "design": design} for kind in range(2) for design in range(5)]
    chosen = [cells[number] for begins in range(2) for number in cover(cells, begins)]
    assert len(chosen) == len(cells) == len({tuple(cell.items()) for cell in chosen})


def test_a_test_of_engines_alone_keeps_them() -> None:
    assert cover([{"kind": 1}, {"kind": 2}]) == {0, 1}
