"""The values that handlers can return, without a database."""

from __future__ import annotations

from typing import Any

import pytest

from tablequeue.worker import Done, Outcome, Retry
from tablequeue.worker.outcome import outcomes_of

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("returned", "outcomes"),
    [
        (None, [Done(), Done()]),
        (Retry(1), [Retry(1), Retry(1)]),
        ([Retry(1), "x"], [Retry(1), Done("x")]),
        ((Retry(1), None), [Retry(1), Done()]),
        # Any other value is the result of each message.
        (("x", "y", "z"), [Done(("x", "y", "z"))] * 2),
    ],
)
def test_what_a_handler_of_a_batch_returns(returned: Any, outcomes: list[Outcome]) -> None:
    assert outcomes_of(returned, 2) == outcomes
