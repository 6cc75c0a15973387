"""The cells that `make test` leaves to `make nightly` have nothing of their own."""

from __future__ import annotations

import re
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


@pytest.mark.parametrize("sizes", [(2, 4, 5), (2, 2, 3, 5), (3, 7, 7)], ids=str)
def test_a_cover_has_each_pair(sizes: tuple[int, ...]) -> None:
    cells = [dict(zip("abcd", values, strict=False)) for values in product(*map(range, sizes))]
    chosen = cover(cells)
    assert {pair for cell in cells for pair in combinations(cell.items(), 2)} == {
        pair for number in chosen for pair in combinations(cells[number].items(), 2)
    }
    assert len(chosen) < len(cells)


def test_a_test_of_engines_alone_keeps_them() -> None:
    assert cover([{"kind": 1}, {"kind": 2}]) == {0, 1}
