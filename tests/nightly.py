"""Cases that only `make nightly` runs, beside a core that `make test` runs on every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def by_night(cases: Iterable[Any], core: Callable[[Any], object]) -> list[Any]:
    """Return the cases for `parametrize`; `core` says which of them `make test` runs. A tuple is several arguments."""
    rows = [(case, case if isinstance(case, tuple) else (case,)) for case in cases]
    assert any(core(case) for case, _ in rows)
    return [pytest.param(*row, marks=() if core(case) else pytest.mark.nightly) for case, row in rows]
