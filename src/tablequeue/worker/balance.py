"""The number of consumers that each queue should have: pure functions.

The rule is the one of Service Broker's queue monitor. Consumers are added when the consumers of a queue have kept
receiving for a while without emptying it. Consumers that find the queue empty retire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Seconds of backlog after which consumers are added, and of idleness after which they retire. Short compared with the
# work for which more consumers are worthwhile, long compared with a pop: from 1 to 8 consumers takes half a second.
GROW_AFTER = 0.1
RETIRE_AFTER = 0.5
# Seconds that a queue keeps a consumer when there are fewer consumers than queues with messages.
TURN = 1.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The consumers and the popped messages of one queue at a moment.

    consumers          how many the queue has; `busy` of them have a message.
    waiting            messages that were popped and that no consumer has begun.
    behind             seconds since the queue was last empty, or since its number of consumers last changed.
    idle               seconds since all consumers were last busy, or since one last retired.
    minimum, maximum   bounds for the number of consumers.
    """

    consumers: int
    busy: int
    waiting: int
    behind: float
    idle: float
    minimum: int
    maximum: int


def desired(queue: Snapshot) -> int:
    """Return how many consumers the queue should have, regardless of other queues.

    A queue that stays behind gets half as many again; in an idle queue, half of the consumers without work retire. So a
    few steps are enough for any maximum.
    """
    consumers = queue.consumers
    if queue.waiting and not consumers:
        consumers = 1
    elif queue.waiting and queue.behind >= GROW_AFTER:
        consumers += max(1, consumers // 2)
    elif queue.idle >= RETIRE_AFTER:
        consumers -= (consumers - queue.busy + 1) // 2
    return min(max(consumers, queue.minimum), queue.maximum)


def share(desired: Mapping[str, int], total: int, turn: int = 0) -> dict[str, int]:
    """Divide `total` consumers among queues: evenly, but no queue gets more than it desires.

    If more queues desire consumers than there are consumers, other queues get them with each `turn`.
    """
    granted = dict.fromkeys(desired, 0)
    unmet = [name for name, number in desired.items() if number]
    if total < len(unmet):
        first = turn * total % len(unmet)
        unmet = unmet[first:] + unmet[:first]
    while unmet and total:
        for name in unmet[:total]:
            granted[name] += 1
        total -= min(total, len(unmet))
        unmet = [name for name in unmet if granted[name] < desired[name]]
    return granted


def startable(granted: Mapping[str, int], alive: Mapping[str, int], total: int) -> dict[str, int]:
    """Return how many of the granted consumers each queue can have now, while consumers that are to retire are still
    busy.

    At most `total` consumers are alive, with one exception: a queue without any consumer gets its first one at once,
    however long the handlers of other queues run.
    """
    spare = total - sum(alive.values())
    numbers: dict[str, int] = {}
    for name, number in granted.items():
        more = max(0, min(number - alive[name], max(spare, 0 if alive[name] else 1)))
        numbers[name] = min(number, alive[name] + more)
        spare -= more
    return numbers
