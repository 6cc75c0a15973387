"""Durations, backoffs and rates; and the checks of the numbers in a definition."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any

from tablequeue.errors import BadDefinition

Duration = float | timedelta
"""Seconds, or a timedelta."""
LARGEST = (1 << 31) - 1
"""The largest count: what an integer column holds on every engine."""
LONGEST = 3.2e9
"""The longest duration, 100 years in seconds: what every engine can add to its clock."""
BACKOFF = (0.1, 5.0)
"""Seconds before the next try after a transient error, doubling from the first to the last."""


def backoff(failures: int) -> float:
    """Return the seconds to wait before the next try, after this number of failures in a row."""
    first, last = BACKOFF
    return min(first * 2.0 ** min(failures - 1, 100), last)  # an outage may be long


def in_seconds(duration: Duration) -> float:
    """Return a timedelta as seconds, and any other value unchanged: a later check refuses values that are no
    duration."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


@dataclass(frozen=True, slots=True, init=False)
class Backoff:
    """How long a failed message waits: `base * factor ** (attempts - 1)`, at most `cap`.

    base     the wait after the first failure: seconds, or a timedelta; 1 second if not given.
    factor   how many times longer each wait is than the one before; 2 if not given.
    cap      the longest wait: seconds, or a timedelta; 1 hour if not given.
    jitter   the fraction of the wait, from 0 to 1, that may be taken off at random, so that messages that failed
             together do not come back together; 0.1 if not given.

    The attributes `base` and `cap` are seconds.
    """

    base: float
    factor: float
    cap: float
    jitter: float

    # Not the one of dataclass: it accepts timedeltas, and the attributes are numbers.
    def __init__(self, base: Duration = 1.0, factor: float = 2.0, cap: Duration = 3600.0, jitter: float = 0.1) -> None:
        values = {"base": in_seconds(base), "factor": factor, "cap": in_seconds(cap), "jitter": jitter}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def seconds(self, attempts: int) -> float:
        # factor ** attempts overflows a float long before it matters: compare logarithms first.
        exponent = max(attempts - 1, 0)
        if self.base == 0:
            wait = 0.0
        elif self.factor > 1 and exponent * math.log(self.factor) > math.log(self.cap / self.base):
            wait = self.cap
        else:
            wait = min(self.cap, self.base * self.factor**exponent)
        return wait * (1 - self.jitter * random.random())


@dataclass(frozen=True, slots=True, init=False)
class Rate:
    """How many messages may be claimed: `number` in each `per` seconds, spread evenly, and `burst` of them at once.

    number   how many, greater than 0; at most 1,000,000 a second.
    per      seconds, or a timedelta; 1 second if not given.
    burst    how many may be claimed at once after a quiet time; 1 if not given: then claims are evenly spaced.

    In any `s` seconds at most `burst + s * number / per` messages are claimed. The time between two messages is rounded
    up to a whole microsecond. The attribute `per` is seconds.
    """

    number: float
    per: float
    burst: int

    def __init__(self, number: float, per: Duration = 1.0, burst: int = 1) -> None:
        for name, value in {"number": number, "per": in_seconds(per), "burst": burst}.items():
            object.__setattr__(self, name, value)

    @property
    def step(self) -> int:
        """Microseconds between two messages."""
        return math.ceil(Fraction(repr(self.per)) * 1_000_000 / Fraction(repr(self.number)))

    def check(self, name: str = "rate") -> None:
        check_positive(f"{name}.number", self.number)
        check_duration(f"{name}.per", self.per, "Give at most 100 years.")
        check_count(f"{name}.burst", self.burst, LARGEST)
        if self.number / self.per > 1_000_000:
            raise BadDefinition(f"{name} is {self.number / self.per:g} a second.", "Give at most 1,000,000 a second.")
        if self.step * self.burst > LONGEST * 1_000_000:
            raise BadDefinition(
                f"{name} has a burst that takes more than 100 years to come back.", "Give a smaller one."
            )


def check_one_of(name: str, value: object, values: tuple[str, ...]) -> None:
    if value not in values:
        raise BadDefinition(f"{name} is {value!r}.", f"Give one of: {', '.join(values)}.")


def check_number(name: str, value: object) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
        raise BadDefinition(f"{name} is {value!r}.", "Give a finite number.")


def check_count(name: str, value: object, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise BadDefinition(f"{name} is {value!r}.", f"Give a whole number from 1 to {most}.")


def check_positive(name: str, value: Any) -> None:
    check_number(name, value)
    if value <= 0:
        raise BadDefinition(f"{name} is {value!r}.", "Give a number greater than 0.")


def check_duration(name: str, value: Any, remedy: str) -> None:
    check_positive(name, value)
    if value > LONGEST:
        raise BadDefinition(f"{name} is {value!r}.", remedy)
