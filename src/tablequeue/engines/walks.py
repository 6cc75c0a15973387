"""What a process remembers of the dead index entries of a queue, so that it seldom walks all of them.

While a transaction holds an old snapshot, an index keeps an entry for each message that was ever in its state. A
statement that begins at the start of an index walks all of them. So it begins where the process has seen no message
before it: see `Walks`. But a mark is only a hint, because another process may put a message below it. So from time to
time a statement is *whole*: it begins at the start. As long as this costs nothing, each one is whole that finds too
little above its mark. A walk that costs something is repeated after a pause, of which it is a small share.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from time import monotonic

from tablequeue.engines.params import Params

# The time between two whole statements, in units of what the last ones cost. Claims, sweeps and looks together, and the
# threads that wait for them, delay fewer than one message in a hundred.
PAUSES = 500
LONGEST_PAUSE = 60.0
# Seconds of a walk that cost nothing: some thousand dead entries.
FREE = 0.001
# Seconds of the work on a message that a statement claims.
EACH_ROW = 0.00002
# Seconds in which the quickest statement is forgotten, because the server may be at another distance.
FORGOTTEN = 60.0
# Statements that are not whole, with which a whole one is compared. Far from the server they take different times: a
# whole one seems dearer than the quickest of them, without any dead entries.
OTHERS = 5
# The ids below the highest one claimed, and the seconds before the last sweep, at which each statement looks: producers
# commit pushes, and consumers retries, in another order than that of the ids, or of the due times.
LATE_IDS, LATE_SECONDS = 1000, 1.0

WHOLE: Params = {"low_water": 0, "since_sweep": None, "until_lease": None}
"""The parameters of a look that begins at the start of each index."""


@dataclass(slots=True)
class Share:
    """Decides which statements of a kind are whole, by what they cost besides a round trip."""

    next_whole: float = 0.0
    """The time, on this process's monotonic clock, from which a statement may be whole."""
    # The quickest statement of each kind, and when the last one of them ended.
    _quickest: dict[object, tuple[float, float]] = field(default_factory=dict)
    # Of the last three, the cheapest counts: one alone may have waited for the network, or for a core.
    _costs: deque[float] = field(default_factory=lambda: deque(maxlen=3))
    # What the last statements of each kind took that were not whole.
    _others: dict[object, deque[float]] = field(default_factory=dict)

    @property
    def allows(self) -> bool:
        return monotonic() >= self.next_whole

    def took(self, began: float, rows: int = 0, *, whole: bool, kind: object = None) -> None:
        """Note a statement that has just ended: when it began, and how many rows it changed.

        kind   the work besides the walk: statements that do the same are compared.
        """
        now = monotonic()
        seconds = now - began
        kind = kind, rows > 0  # a change waits for the disk
        quickest, last = self._quickest.get(kind, (seconds, now))
        quickest = min(seconds, quickest + (seconds - quickest) * min(1.0, (now - last) / FORGOTTEN))
        self._quickest[kind] = quickest, now
        others = self._others.setdefault(kind, deque(maxlen=OTHERS))
        if not whole:
            others.append(seconds - rows * EACH_ROW)
        else:
            slowest = max(others) if len(others) == OTHERS else quickest
            self._costs.append(seconds - rows * EACH_ROW - slowest)
            cost = min(self._costs) if len(self._costs) == 3 else 0.0
            self.next_whole = now + (min(cost * PAUSES, LONGEST_PAUSE) if cost > FREE else 0.0)


@dataclass(slots=True)
class Walks:
    """The marks of a queue's table, and the shares of time of the statements that pass over them."""

    claims: Share = field(default_factory=Share)
    sweeps: Share = field(default_factory=Share)
    looks: Share = field(default_factory=Share)
    highest: int = 0
    """The highest id that this process has claimed."""
    swept_at: float | None = None
    """When the last sweep began that left nothing, on this process's monotonic clock."""
    lease_end: float = 0.0
    """No lease ends before this time, as far as the last look knows."""

    @property
    def late_ids(self) -> int:
        """The id from which a claim begins that is not whole, and finds too little above the mark."""
        return max(0, self.highest - LATE_IDS)

    @property
    def marked(self) -> bool:
        """Whether some statements are not whole at present."""
        return not (self.claims.allows and self.sweeps.allows and self.looks.allows)

    @property
    def marks(self) -> Params:
        """The parameters of a look that is not whole."""
        return {"low_water": self.late_ids, "since_sweep": self.since_sweep, "until_lease": self.until_lease}

    @property
    def since_sweep(self) -> float | None:
        """The seconds before now in which a message may have become due, or a lease may have ended, since the sweep."""
        return None if self.swept_at is None else monotonic() - self.swept_at + LATE_SECONDS

    def passed_over(self, ended: float) -> None:
        """Have the next sweep look at the time `ended`, if it is before the last sweep: that one left such a message.

        Another session had locked it then, and may have been rolled back since.
        """
        if self.swept_at is not None:
            self.swept_at = min(self.swept_at, ended)

    @property
    def until_lease(self) -> float:
        """The seconds from now on before which no lease ends."""
        return self.lease_end - monotonic() - LATE_SECONDS
