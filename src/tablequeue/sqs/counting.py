"""How many messages of a queue are visible, in flight and delayed."""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic

from tablequeue.aio.queue import AsyncQueue
from tablequeue.model.states import LiveState

COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")
MOST_IN_FLIGHT = 120_000
# The most messages that are read to find messages with an ended visibility timeout or delay, and the number read at
# once.
MOST_COUNTED = 1000
AT_ONCE = 100
# Seconds between two looks at a queue that is full.
LOOK_EVERY = 1.0


async def counts(queue: AsyncQueue) -> dict[str, str]:
    """Return how many messages are visible, in flight and delayed; after its timeout or delay a message is visible."""
    stats = await queue.stats()
    now = datetime.now(UTC)
    back = due = behind = 0
    if stats.in_progress:
        back = sum(end <= now for end in await _ends(queue, "in_progress"))
    if stats.scheduled:
        due = sum(end <= now for end in await _ends(queue, "scheduled"))
    if stats.scheduled and stats.blocked:
        behind = sum(end > now for end in await _ends(queue, "blocked"))
    visible, in_flight, delayed = COUNTS
    return {
        visible: str(stats.ready + stats.blocked - behind + back + due),
        in_flight: str(stats.in_progress - back),
        delayed: str(stats.scheduled - due + behind),
    }


class InFlight:
    """Whether a queue has as many messages in flight as it may have.

    The messages are counted again when this process has received as many as the last count left room for. So several
    endpoints that receive at once may together exceed the limit, each by that number.
    """

    def __init__(self, queue: AsyncQueue) -> None:
        self._queue = queue
        self._room = 0
        self._next = 0.0
        self._full = False

    async def is_full(self) -> bool:
        if self._room <= 0 and monotonic() >= self._next:
            self._next = monotonic() + LOOK_EVERY
            self._room = MOST_IN_FLIGHT - int((await counts(self._queue))[COUNTS[1]])
            self._full = self._room <= 0
        return self._full

    def add(self, received: int) -> None:
        self._room -= received


async def _ends(queue: AsyncQueue, state: LiveState) -> list[datetime]:
    """Return when the first messages in a state are visible. Few are read at once: they may be large."""
    found: list[datetime] = []
    after = 0
    for _ in range(MOST_COUNTED // AT_ONCE):
        page = await queue.peek(AT_ONCE, state=state, after=after)
        found += [end for message in page if (end := message.lease_until or message.due_at) is not None]
        if len(page) < AT_ONCE:
            break
        after = page[-1].id
    return found
