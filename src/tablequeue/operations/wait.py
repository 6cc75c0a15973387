"""Waiting for messages: woken by pushes where the engine can, looking again where it cannot, and when one is due."""

from __future__ import annotations

from collections.abc import Callable
from random import random
from threading import Event
from time import monotonic, sleep
from typing import Self

from tablequeue.definition import Duration, in_seconds
from tablequeue.operations.context import Context, seconds

# Seconds between two looks: the first, and what it doubles up to while nothing comes. With a notifier they are for a
# wake-up that was lost: the push had looked for somebody waiting a moment before, or the notifier is out of order.
PAUSES = (0.01, 0.5)
PAUSES_WITH_NOTIFIER = (0.1, 10.0)

# Seconds that who is woken lingers at the most: twice as long each time that it was woken in vain, until it finds
# something. One push wakes all who wait, and one of them gets the message: 200 who popped at once did little else, and
# 200 readers and 200 writers got a tenth done of what 10 and 10 did. The longest is what a message may wait for them
# if those who found something before are busy.
LINGER = (0.002, 0.1)

# Seconds between two looks while a push is under way in a transaction that is open: a share of the time that this has
# lasted already, so that a commit is seen later by that share at the most, within bounds.
PUSHING_SHARE = 0.25
PUSHING_PAUSES = (0.002, 0.25)

INFINITE = float("inf")


class Waiter:
    """One who waits at a queue: a consumer, or a worker. For one thread at a time, except `wake`.

    longest   the longest pause between two looks; None: as good as the engine's notifier allows.
    on_push   what the notifier calls, in its own thread, to end a pause; None: the one of `wait`.
    """

    def __init__(
        self, context: Context, longest: Duration | None = None, on_push: Callable[[], None] | None = None
    ) -> None:
        self._context = context
        self._notifier = context.runner.notifier
        self._longest = None if longest is None else seconds(longest, "longest_pause")
        self._event = Event()
        self._on_push = on_push or self._event.set
        self._called = False
        self._pause = 0.0
        self._looked_early = False
        self._linger = 0.0
        self._busy_since: float | None = None
        self._pushing_since: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.leave()

    def wake(self) -> None:
        """End the wait of another thread, or else its next one."""
        self._called = True
        self._event.set()

    def found(self) -> None:
        """A pop has found something."""
        if self.is_busy():
            self.leave()

    def is_busy(self) -> bool:
        """A pop has found something; whether that goes on for so long that pushes need not notify any more."""
        self._pause, self._looked_early, self._linger = 0.0, False, 0.0
        now = monotonic()
        if self._busy_since is None:
            self._busy_since = now
        return self._notifier is not None and now - self._busy_since >= self._notifier.busy_after

    def wait(self, limit: Duration | None = None) -> None:
        """After a pop that has found nothing: until another one may find something, or until `limit` is over.

        `limit` is seconds, or a timedelta; None: there is none. Costs one small read a pause. What becomes due, or
        whose lease ends, is waited for to the moment.
        """
        end = INFINITE if limit is None else monotonic() + in_seconds(limit)
        while not self._called and (pause := self.pause(end)) is not None:
            woken = self._event.wait(pause)
            self._event.clear()
            if woken and self.pops_at_once:
                sleep(self.linger(end))
                break
        self._called = False

    @property
    def pops_at_once(self) -> bool:
        """Whether to pop after a wake-up without another look, which spares a round trip.

        Of many who are woken by one push, all but one pop in vain. A look would not spare them that: they are woken
        at the same moment, and until the first one's claim has committed all see the message ready.
        """
        return self._notifier is not None and self._notifier.exact

    def linger(self, end: float) -> float:
        """How long who was woken is to sleep on before it pops: some time, if it was in vain before, until `end`."""
        self._pushing_since = None  # another push has begun
        seconds = random() * self._linger
        self._linger = min(max(LINGER[0], self._linger * 2), LINGER[1])
        return max(0.0, min(seconds, end - monotonic()))

    def pause(self, end: float) -> float | None:
        """How long to sleep before the next look, if no wake-up comes; None: pop now, or `end` has come."""
        self._busy_since = None
        # In this order: what is pushed after the look is reported.
        listening = self._notifier is not None and self._notifier.attend(self._context.table, self._on_push)
        coming = self._context.run(self._context.engine.reads.until_next, {"now": None})
        due = INFINITE if coming.seconds is None else float(coming.seconds)
        if due <= 0 and not self._looked_early:
            # It came since the pop. But if it is locked, the next pop will not find it either: then pause.
            self._looked_early = True
            return None
        self._looked_early = False
        left = end - monotonic()
        if left <= 0:
            return None
        pause = self._pushing_pause() if coming.pushing else self._next_pause(listening)
        return min(pause, left, due if due > 0 else pause)

    def leave(self) -> None:
        """Not to wait any more; pushes need not wake this one."""
        if self._notifier is not None:
            self._notifier.leave(self._context.table, self._on_push)

    # -- private -----------------------------------------------------------------------------------------------------

    def _pushing_pause(self) -> float:
        now = monotonic()
        if self._pushing_since is None:
            self._pushing_since = now
        shortest, longest = PUSHING_PAUSES
        return min(max(shortest, (now - self._pushing_since) * PUSHING_SHARE), longest)

    def _next_pause(self, listening: bool) -> float:
        self._pushing_since = None
        shortest, longest = PAUSES_WITH_NOTIFIER if listening else PAUSES
        longest = longest if self._longest is None else min(longest, self._longest)
        self._pause = min(max(shortest, self._pause * 2), longest)
        return self._pause
