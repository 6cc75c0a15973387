"""The clock of a test: it moves leases, delays and schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Self

from tablequeue.engines import clock
from tablequeue.errors import BadInput
from tablequeue.model.pacing import Duration, in_seconds
from tablequeue.verbs.context import LAST_NOW, seconds

# Before it, the times of some engines have no number.
FIRST_NOW = datetime(1970, 1, 2, tzinfo=UTC)


class Clock:
    """A clock that a test moves, and that goes on from there. After the block, the database's clock counts again.

    All verbs of this process without `now=` use it, on every database: due times, leases, backoffs, rates, expiry,
    schedules, the times of messages. Python's own clocks do not, nor do time-outs of handlers, the processes of a
    worker, and other programs. A worker that waits in the background looks within 10 seconds; `drain` looks at once.
    A clock that was not moved costs nothing: the database's clock decides.
    """

    def __init__(self) -> None:
        self._entered = False

    def __enter__(self) -> Self:
        self._before = clock.ahead
        self._entered = True
        return self

    def __exit__(self, *exc: object) -> None:
        self._entered = False
        clock.ahead = self._before

    def now(self) -> datetime:
        """Return the time of the clock, in UTC."""
        return clock.now()

    def advance(self, duration: Duration) -> datetime:
        """Move the clock on by seconds, or a timedelta, and return its time. `BadInput` for less than 0."""
        seconds(duration, "duration")
        return self.move_to(clock.now() + timedelta(seconds=in_seconds(duration)))

    def move_to(self, time: datetime) -> datetime:
        """Move the clock to an aware time, and return it. It may be in the past: then existing messages are from the
        future."""
        if not self._entered:
            raise BadInput(
                "The clock is moved outside of its block, so nothing would set it right.",
                "Write `with Clock() as clock:`, or use the fixture tablequeue_clock.",
            )
        if not isinstance(time, datetime) or time.utcoffset() is None:
            raise BadInput(f"{time!r} does not say its time zone.", "Give an aware datetime.")
        if not FIRST_NOW <= time <= LAST_NOW:
            raise BadInput(f"{time} is too far away.", f"Give a time from {FIRST_NOW.year} to {LAST_NOW.year}.")
        clock.ahead = time - datetime.now(UTC)
        return time.astimezone(UTC)


__all__ = ["Clock"]
