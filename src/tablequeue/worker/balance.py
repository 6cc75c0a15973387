"""How many consumers a queue should have: pure functions of what is seen of it.

The rule is that of Service Broker's queue monitor: a consumer is added when those there have kept receiving for a while
and the queue was not emptied; consumers that find it empty retire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Seconds of backlog after which consumers are added, and of idleness after which they retire. Short against what a
# handler is worth having consumers for, long against a pop: 1 to 8 consumers takes half a second.
GROW_AFTER = 0.1
RETIRE_AFTER = 0.5
# Seconds that a queue has a consumer when there are fewer consumers than queues with messages.
TURN = 1.0


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen of one queue at a moment.

    consumers   that there are; `busy` of them have a message.
    waiting   messages that were popped and that no consumer has begun.
    behind    seconds since the queue was last seen empty, or since its consumers were last changed.
    idle      seconds since every consumer was last busy, or since one last retired.
    minimum, maximum   the consumers that it may have.
    """

    consumers: int
    busy: int
    waiting: int
    behind: float
    idle: float
    minimum: int
    maximum: int


def wanted(sight: Sight) -> int:
    """How many consumers the queue should have, were it alone.

    Half as many more while it stays behind, half of those without work fewer while it is idle: whatever the maximum,
    a few steps lead there.
    """
    consumers = sight.consumers
    if sight.waiting and not consumers:
        consumers = 1
    elif sight.waiting and sight.behind >= GROW_AFTER:
        consumers += max(1, consumers // 2)
    elif sight.idle >= RETIRE_AFTER:
        consumers -= (consumers - sight.busy + 1) // 2
    return min(max(consumers, sight.minimum), sight.maximum)


def share(wanted: Mapping[str, int], total: int, turn: int = 0) -> dict[str, int]:
    """Deal out `total` consumers: nobody gets more than wanted, and nobody less than another who gets more than one.

    Where there are fewer consumers than queues that want some, they go on to others with each `turn`.
    """
    granted = dict.fromkeys(wanted, 0)
    hungry = [name for name, number in wanted.items() if number]
    if total < len(hungry):
        first = turn * total % len(hungry)
        hungry = hungry[first:] + hungry[:first]
    while hungry and total:
        for name in hungry[:total]:
            granted[name] += 1
        total -= min(total, len(hungry))
        hungry = [name for name in hungry if granted[name] < wanted[name]]
    return granted


def added(granted: Mapping[str, int], there: Mapping[str, int], total: int) -> dict[str, int]:
    """As many of the granted consumers as there can be now, while some that are to go still have a message.

    With them they are no more than `total`, but for queues that have none: such a queue gets its first one at once,
    however long the handlers of others run.
    """
    spare = total - sum(there.values())
    numbers: dict[str, int] = {}
    for name, number in granted.items():
        more = min(number - there[name], max(spare, 0 if there[name] else 1))
        numbers[name] = number if number <= there[name] else there[name] + max(0, more)
        spare -= max(0, more)
    return numbers
