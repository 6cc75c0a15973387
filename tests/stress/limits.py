"""Queues with limits, of the whole queue and of each group, in a round of topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tablequeue import Rate
from tests.stress.held import CLOCKS, Held
from tests.stress.violation import Violation

# The number of messages in a queue: more than its rate allows in a round.
MESSAGES = 5_000


@dataclass(frozen=True)
class Limits:
    """Claims a second, claims at once, and messages in progress: of a queue, or of each of its groups."""

    rate: Rate
    places: int
    groups: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        if self.groups:
            return {"groups": "fair", "group_rate": self.rate, "per_group": self.places}
        return {"rate": self.rate, "concurrency": self.places}

    def group(self, number: int) -> dict[str, Any]:
        """Return the group of a message, as an option of its push."""
        return {"group": self.groups[number % len(self.groups)]} if self.groups else {}


QUEUES = {
    "limited": Limits(Rate(40, burst=5), 4),
    "shares": Limits(Rate(5, burst=3), 2, ("a", "b", "c")),
}


def exceeded(name: str, claims: Iterable[Held]) -> Iterator[Violation]:
    """Return where a limit of a queue, or of one of its groups, was surely exceeded: the first moment of each."""
    limits, of_group = QUEUES[name], defaultdict[str, list[Held]](list)
    for held in claims:
        # The uid of a message begins with its group, a letter.
        of_group[held.got.uid[0] if limits.groups else ""].append(held)
    for each in of_group.values():
        yield from beyond(name, limits, sorted(each, key=lambda held: held.op.begin))


def beyond(name: str, limits: Limits, held: list[Held]) -> Iterator[Violation]:
    """Count the claims that were surely made between two moments, and the messages that were surely held at one."""
    rate = limits.rate
    for place, first in enumerate(held):
        ends = sorted(other.op.end for other in held[place:])
        for number, end in enumerate(ends, 1):
            allowed = rate.burst + 1 + (end - first.op.begin + CLOCKS) * rate.number / rate.per
            if number > allowed:
                yield Violation("quick", f"{number} claims in {end - first.op.begin:.3f} s", name, at=end)
                return
        at = first.op.end
        at_once = [other for other in held if other.op.end <= at < other.until]
        if len(at_once) > limits.places:
            yield Violation("many", f"{len(at_once)} in progress", name, at=at)
            return
