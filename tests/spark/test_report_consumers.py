"""How many consumers are needed, compared with a simulation that goes through time in the plainest way. No Spark."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tablequeue.spark.reports.consumers import SHARE, needed, percentile, waits

# Whole numbers of quarters of a second: exact as floats, with many things at the same moment.
seconds = st.integers(0, 80).map(lambda quarters: quarters / 4)
hours = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=40).map(lambda messages: sorted(messages))


def waits_by_hand(arrived: list[float], service: list[float], consumers: int) -> list[float]:
    """Each message looks at all consumers, and takes the one that is free first."""
    free = [0.0] * consumers
    found = []
    for at, took in zip(arrived, service, strict=True):
        consumer = min(range(consumers), key=lambda one: free[one])
        start = max(at, free[consumer])
        free[consumer] = start + took
        found.append(start - at)
    return found


def needed_by_hand(arrived: list[float], service: list[float], target: float) -> int:
    """All numbers of consumers in turn."""
    for consumers in range(1, len(arrived) + 1):
        kept = sum(wait <= target for wait in waits_by_hand(arrived, service, consumers))
        if kept >= SHARE * len(arrived):
            return consumers
    raise AssertionError("as many consumers as messages are always enough")


@settings(deadline=None)
@given(hours, st.integers(1, 6))
def test_waits(messages: list[tuple[float, float]], consumers: int) -> None:
    arrived, service = map(list, zip(*messages, strict=True))
    assert list(waits(arrived, service, consumers)) == waits_by_hand(arrived, service, consumers)


@settings(deadline=None)
@given(hours, seconds)
def test_needed(messages: list[tuple[float, float]], target: float) -> None:
    arrived, service = map(list, zip(*messages, strict=True))
    assert needed(arrived, service, target) == needed_by_hand(arrived, service, target)


@settings(deadline=None)
@given(hours, st.integers(1, 8))
def test_one_more_consumer_makes_no_message_wait_longer(messages: list[tuple[float, float]], consumers: int) -> None:
    """What the search for `needed` rests on."""
    arrived, service = map(list, zip(*messages, strict=True))
    fewer, more = waits(arrived, service, consumers), waits(arrived, service, consumers + 1)
    assert all(after <= before for before, after in zip(fewer, more, strict=True))


@given(st.lists(seconds, min_size=1))
def test_percentile_is_the_least_that_the_share_is_not_above(values: list[float]) -> None:
    found = percentile(values)
    assert sum(value <= found for value in values) >= SHARE * len(values)
    assert sum(value < found for value in values) < SHARE * len(values)


def test_needed_agrees_with_the_theory_of_queues() -> None:
    """M/M/c: with arrivals and run times by chance, the share that waits longer than t is C exp(-(c mu - lambda) t)."""
    rate, mean, target, chance = 5.0, 1.0, 0.5, random.Random(1)
    arrived, at = [], 0.0
    for _ in range(100_000):
        at += chance.expovariate(rate)
        arrived.append(at)
    service = [chance.expovariate(1 / mean) for _ in arrived]

    def late(consumers: int) -> float:
        load = rate * mean
        full = load**consumers / math.factorial(consumers) * consumers / (consumers - load)
        erlang = full / (sum(load**k / math.factorial(k) for k in range(consumers)) + full)
        return erlang * math.exp(-(consumers / mean - rate) * target)

    expected = next(consumers for consumers in range(6, 20) if late(consumers) <= 1 - SHARE)
    assert needed(arrived, service, target) == expected
    measured = list(waits(arrived, service, expected))
    assert sum(wait > target for wait in measured) / len(measured) == pytest.approx(late(expected), rel=0.2)
