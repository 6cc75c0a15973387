"""The number of consumers, and the back-off of a worker: pure functions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablequeue.model.pacing import backoff
from tablequeue.worker.balance import GROW_AFTER, RETIRE_AFTER, Snapshot, desired, share, startable

pytestmark = pytest.mark.quick

CALM = Snapshot(consumers=4, busy=4, waiting=0, behind=0, idle=0, minimum=0, maximum=100)


@pytest.mark.parametrize(
    ("seen", "consumers"),
    [
        ({}, 4),
        ({"consumers": 0, "busy": 0}, 0),
        # The first message starts a consumer at once.
        ({"consumers": 0, "busy": 0, "waiting": 1}, 1),
        # A short backlog does not add consumers; a lasting one adds half as many.
        ({"waiting": 9}, 4),
        ({"waiting": 9, "behind": GROW_AFTER}, 6),
        ({"consumers": 1, "busy": 1, "waiting": 9, "behind": GROW_AFTER}, 2),
        ({"waiting": 9, "behind": GROW_AFTER, "maximum": 5}, 5),
        # All popped messages have a consumer: nothing shows that one more would have work.
        ({"waiting": 0, "behind": 99}, 4),
        # Half of the consumers without work retire, also the last one.
        ({"busy": 0, "idle": RETIRE_AFTER}, 2),
        ({"busy": 3, "idle": RETIRE_AFTER}, 3),
        ({"consumers": 1, "busy": 0, "idle": RETIRE_AFTER}, 0),
        ({"consumers": 1, "busy": 0, "idle": RETIRE_AFTER, "minimum": 1}, 1),
        ({"busy": 0, "idle": RETIRE_AFTER / 2}, 4),
        # The minimum holds, whether or not there is work.
        ({"consumers": 0, "busy": 0, "minimum": 3}, 3),
    ],
)
def test_the_rule(seen: dict[str, float], consumers: int) -> None:
    assert desired(replace(CALM, **seen)) == consumers  # type: ignore[arg-type]


@pytest.mark.parametrize(("start", "seen", "end"), [(1, {"waiting": 1, "behind": 1}, 100), (100, {"idle": 1}, 0)])
def test_a_few_steps_lead_to_the_end(start: int, seen: dict[str, int], end: int) -> None:
    consumers, steps = start, 0
    while consumers != end:
        busy = consumers if "waiting" in seen else 0
        consumers = desired(replace(CALM, consumers=consumers, busy=busy, **seen))
        steps += 1
    assert steps <= 12


@pytest.mark.parametrize(
    ("wants", "total", "granted"),
    [
        ({"a": 3, "b": 2}, 8, {"a": 3, "b": 2}),
        ({"a": 30, "b": 2}, 8, {"a": 6, "b": 2}),
        ({"a": 30, "b": 30, "c": 0}, 8, {"a": 4, "b": 4, "c": 0}),
        ({"a": 30, "b": 30}, 1, {"a": 1, "b": 0}),
        ({}, 8, {}),
    ],
)
def test_shares(wants: dict[str, int], total: int, granted: dict[str, int]) -> None:
    assert share(wants, total) == granted


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 50), max_size=6), st.integers(1, 60))
def test_nobody_starves(wants: dict[str, int], total: int) -> None:
    granted = share(wants, total)
    assert granted.keys() == wants.keys()
    assert sum(granted.values()) == min(total, sum(wants.values()))
    assert all(granted[name] <= wants[name] for name in wants)
    short = [granted[name] for name in wants if granted[name] < wants[name]]
    assert all(max(granted.values()) <= few + 1 for few in short)


@pytest.mark.parametrize("maximum", [1, 2])
def test_turns(maximum: int) -> None:
    wanted = {"a": 3, "b": 1, "c": 0, "d": 9}
    turns = [share(wanted, maximum, turn) for turn in range(6)]
    assert all(sum(turn.values()) == maximum for turn in turns)
    assert {name for turn in turns for name in turn if turn[name]} == {"a", "b", "d"}


@pytest.mark.parametrize(
    ("granted", "there", "numbers"),
    [
        ({"a": 2, "b": 2}, {"a": 2, "b": 0}, {"a": 2, "b": 2}),
        ({"a": 2, "b": 2}, {"a": 4, "b": 0}, {"a": 2, "b": 1}),
        ({"a": 3, "b": 1}, {"a": 2, "b": 2}, {"a": 2, "b": 1}),
        ({"a": 0, "b": 0}, {"a": 4, "b": 0}, {"a": 0, "b": 0}),
    ],
)
def test_no_more_than_there_may_be(granted: dict[str, int], there: dict[str, int], numbers: dict[str, int]) -> None:
    assert startable(granted, there, 4) == numbers


def test_outages_may_be_long() -> None:
    assert backoff(1) == 0.1
    assert backoff(100_000) == 5
